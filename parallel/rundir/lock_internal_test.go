//go:build unix

package rundir

import (
	"errors"
	"os"
	"testing"
)

// A descriptor that is closed stands for a file system that refuses.
func TestWhatCannotBeLockedIsNotHeld(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := lock(f); !errors.Is(err, ErrNoLock) || errors.Is(err, errHeld) {
		t.Error(err)
	}
}
