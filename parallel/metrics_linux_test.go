package parallel

import (
	"os"
	"testing"

	"github.com/ditask/ditask/parallel/metrics"
)

// The counts of Linux follow the use of the process.
func TestMetricsOfTheProcessOnLinux(t *testing.T) {
	var l list
	l.process()
	memory, files, cpu := value(t, l, metrics.ProcessMemory), value(t, l, metrics.ProcessFiles), value(t, l, metrics.ProcessCPU)
	if memory < 1<<20 || memory > 1<<40 || cpu <= 0 || cpu > 1e6 {
		t.Errorf("memory %v, processor %v", memory, cpu)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if want := len(fds) - 1; int(files) != want {
		t.Errorf("%v files are open, want %d", files, want)
	}
}
