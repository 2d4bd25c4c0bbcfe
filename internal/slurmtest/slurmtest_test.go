//go:build linux

package slurmtest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	// Jobs end with the cluster.
	if out, code := c.Run(t, watch.Environ(), "sbatch", "--output", "/dev/null", "--wrap",
		"srun sh -c 'touch "+begun+"; exec sleep 1000'"); code != 0 {
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

// helper is the variable that makes this test binary a process which opens a
// cluster and is killed.
const helper = "SLURMTEST_OPENS_A_CLUSTER"

func TestClusterGoesWithItsProcess(t *testing.T) {
	if os.Getenv(helper) != "" {
		c, err := slurmtest.Open(slurmtest.Config{Nodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		out, code := c.Run(t, nil, "sbatch", "--output", "/dev/null", "--wrap", "srun -N 2 -n 2 sleep 1000", "-N", "2", "-n", "2")
		fmt.Printf("opened %d %s\n", code, out)
		select {} // until it is killed
	}
	watch := leak.Check(t)
	slurmtest.Programs(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestClusterGoesWithItsProcess$")
	cmd.Env = append(watch.Environ(), helper+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "opened 0") {
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if left := leak.Await(watch.Left, 30*time.Second); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
