//go:build linux

package slurmtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/slurmtest"
)

func TestClusterComesAndGoes(t *testing.T) {
	watch := leak.Check(t)
	slurmtest.Programs(t)
	begun := filepath.Join(t.TempDir(), "begun")
	t.Setenv("TMPDIR", watch.Dir)
	c, err := slurmtest.Open(slurmtest.Config{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	out, code := c.Run(t, watch.Environ(), "srun", "-N", "2", "-n", "3", "sh", "-c", "echo $SLURM_PROCID@$SLURMD_NODENAME")
	if code != 0 || len(strings.Fields(out)) != 3 || !strings.Contains(out, "2@n2") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	// What runs in the cluster goes with it.
	if out, code := c.Run(t, watch.Environ(), "sbatch", "--output", "/dev/null", "--wrap", "srun sh -c 'touch "+begun+"; exec sleep 1000'"); code != 0 {
		t.Fatalf("sbatch: %s", out)
	}
	slurmtest.Await(t, func() string { return "the job did not begin" }, func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left := watch.Left(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
