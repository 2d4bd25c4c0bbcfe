package rundir_test

import (
	"sync"
	"testing"

	"github.com/ditask/ditask/parallel/rundir"
)

// TestHeldDoesNotDisturb: it reports the lock, and a job that takes the folder at the same moment succeeds.
func TestHeldDoesNotDisturb(t *testing.T) {
	dir := t.TempDir()
	held := func(want bool) {
		t.Helper()
		if got, err := rundir.Held(dir); err != nil || got != want {
			t.Errorf("held %v, %v; want %v", got, err, want)
		}
	}
	held(false)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = rundir.Held(dir)
				}
			}
		})
	}
	for range 200 {
		lock, err := rundir.Take(dir, rundir.Self("job"))
		if err != nil {
			t.Error(err)
			break
		}
		held(true)
		lock.Release()
	}
	close(stop)
	wg.Wait()
	held(false)
}
