//go:build linux

// Package slurmtest runs a real Slurm for tests, from the binaries that are
// installed: a controller and several nodes, all on this machine.
//
//	c := slurmtest.Start(t, slurmtest.Config{Nodes: 4})
//	out, code := c.Run(t, nil, "srun", "-n", "4", "hostname")
//
// The daemons run as the user of the test, without munge and without systemd, on
// free ports of the loopback; the host names n1, n2 ... resolve nowhere, and Slurm
// knows their addresses, 127.0.0.11 and following. Every command has a time limit, as
// srun waits forever for a node that does not come. Close ends a cluster with
// all that runs in it, and so does any end of the test's process.
package slurmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/freeport"
)

// Packages are the packages of Debian that have Slurm's programs.
const Packages = "slurmctld slurmd slurm-client"

// Limit is the time after which a command is interrupted.
const Limit = 3 * time.Minute

// Config describes a cluster. The zero value works.
type Config struct {
	Nodes int      // number of nodes; 0: 4
	Conf  []string // further lines of slurm.conf
}

// Cluster is a Slurm that runs.
type Cluster struct {
	Nodes []string // their names

	dir   string
	conf  string
	life  io.Closer // closing it ends everything
	guard *exec.Cmd
	ports func() // gives them back
}

// Programs skips the test without Slurm's programs, or fails it on CI.
func Programs(t testing.TB) {
	t.Helper()
	if err := missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func missing() error {
	for _, name := range []string{"slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "sinfo", "squeue"} {
		if _, err := program(name); err != nil {
			return fmt.Errorf("there is no %s: install the packages %s (make deps)", name, Packages)
		}
	}
	return nil
}

// program finds a program, also where only root's PATH would.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	return path, err
}

// Start starts a cluster for one test.
func Start(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	Programs(t)
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Open starts a cluster that the caller closes, and waits until all nodes are
// idle.
func Open(cfg Config) (*Cluster, error) {
	if err := missing(); err != nil {
		return nil, err
	}
	if cfg.Nodes == 0 {
		cfg.Nodes = 4
	}
	var err error
	for range 3 { // another process may be quicker to take a port
		var c *Cluster
		if c, err = open(cfg); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func open(cfg Config) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, conf: filepath.Join(dir, "slurm.conf")}
	text, err := c.configure(cfg)
	if err == nil {
		err = os.WriteFile(c.conf, []byte(text), 0o600)
	}
	for _, name := range append([]string{"state", "config"}, c.Nodes...) {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	if err == nil {
		err = c.start()
	}
	if err == nil {
		err = c.awaitIdle()
	}
	if err != nil {
		err = fmt.Errorf("slurm: %w%s", err, c.logs())
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// configure writes slurm.conf and names the nodes.
func (c *Cluster) configure(cfg Config) (string, error) {
	me, err := user.Current()
	if err != nil {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	port, give, err := freeport.Take(cfg.Nodes + 1)
	if err != nil {
		return "", err
	}
	c.ports = give
	firstJob := 1 + rand.IntN(1_000_000) // the ports of a job follow from its id, and clusters share the machine
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, `ClusterName=test
SlurmctldHost=%s(127.0.0.1)
SlurmctldPort=%d
SlurmUser=%s
SlurmdUser=%s
AuthType=auth/none
CredType=cred/none
StateSaveLocation=%[5]s/state
SlurmdSpoolDir=%[5]s/%%n
SlurmctldPidFile=%[5]s/ctld.pid
SlurmdPidFile=%[5]s/%%n.pid
SlurmctldLogFile=%[5]s/ctld.log
SlurmdLogFile=%[5]s/%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=20
FirstJobId=%[6]d
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
MailProg=/bin/true
`, host, port, me.Username, me.Username, c.dir, firstJob)
	for _, line := range cfg.Conf {
		_, _ = fmt.Fprintln(&b, line) // to memory
	}
	for i := range cfg.Nodes {
		c.Nodes = append(c.Nodes, "n"+strconv.Itoa(i+1))
		_, _ = fmt.Fprintf(&b, "NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.%d Port=%d CPUs=8 RealMemory=1000 State=UNKNOWN\n", i+1, host,
			11+i, port+1+i)
	}
	_, _ = fmt.Fprintln(&b, "PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8")
	return b.String(), nil
}

// guard is the parent of the daemons. When its standard input is closed, which is
// also what happens when the test's process is killed, it kills them, and whatever
// has their configuration in its environment: what runs in the cluster.
const guard = `
ctld=$1 slurmd=$2; shift 2
"$ctld" -D -f "$SLURM_CONF" </dev/null >/dev/null 2>&1 &
daemons=$!
for node; do "$slurmd" -D -N "$node" -f "$SLURM_CONF" </dev/null >/dev/null 2>&1 & daemons="$daemons $!"; done
exec >/dev/null 2>&1
read -r _
kill -9 $daemons
wait
for round in 1 2 3 4 5 6 7 8 9 10; do
	left=
	for f in $(grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null); do
		pid=${f#/proc/}; pid=${pid%/environ}
		[ "$pid" = $$ ] || { kill -9 "$pid" && left=1; }
	done
	[ -n "$left" ] || break
done
rm -rf "${SLURM_CONF%/slurm.conf}"
`

func (c *Cluster) start() error {
	ctld, err := program("slurmctld")
	if err != nil {
		return err
	}
	slurmd, err := program("slurmd")
	if err != nil {
		return err
	}
	c.guard = exec.Command("sh", append([]string{"-c", guard, "sh", ctld, slurmd}, c.Nodes...)...) //nolint:noctx // it ends with its input
	c.guard.Env = c.Environ(os.Environ())
	c.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C at the terminal is not for it
	stdin, err := c.guard.StdinPipe()
	if err != nil {
		return err
	}
	c.life = stdin
	return c.guard.Start()
}

// awaitIdle returns when all nodes can take jobs.
func (c *Cluster) awaitIdle() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		out, err := c.Command(ctx, nil, "sinfo", "--noheader", "--states", "idle", "--responding", "--format", "%D").Output()
		if err == nil && strings.TrimSpace(string(out)) == strconv.Itoa(len(c.Nodes)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d nodes are not idle: sinfo says %q, %w", len(c.Nodes), out, err)
		case <-pause.C:
		}
	}
}

// logs returns the last lines of the daemons' logs.
func (c *Cluster) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		_, _ = fmt.Fprintf(&b, "\n%s:\n%s", filepath.Base(f), strings.Join(lines[max(len(lines)-10, 0):], "\n")) // to memory
	}
	return b.String()
}

// Close ends the daemons and all that runs in the cluster, and removes its
// folder.
func (c *Cluster) Close() error {
	if c.ports != nil {
		defer c.ports()
	}
	if c.life == nil {
		return os.RemoveAll(c.dir)
	}
	err := c.life.Close()
	c.life = nil
	return errors.Join(err, c.guard.Wait())
}

// Environ returns an environment for commands of this cluster: base, without what
// belongs to another one, and with its own folder for the user's configuration.
func (c *Cluster) Environ(base []string) []string {
	var out []string
	for _, kv := range base {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "SLURM") && name != "XDG_CONFIG_HOME" {
			out = append(out, kv)
		}
	}
	return append(out, "SLURM_CONF="+c.conf, "XDG_CONFIG_HOME="+c.Config())
}

// Config returns a path in the folder of the user's configuration.
func (c *Cluster) Config(path ...string) string {
	return filepath.Join(append([]string{c.dir, "config"}, path...)...)
}

// Command returns a command with the variables of the cluster added to base, or to
// this process's environment if base is nil. When ctx ends, the command is
// interrupted, as by Ctrl-C, and killed later.
func (c *Cluster) Command(ctx context.Context, base []string, name string, args ...string) *exec.Cmd {
	if base == nil {
		base = os.Environ()
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.Environ(base)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Run runs a command and returns what it has written and its exit code. The test
// fails if it takes longer than Limit.
func (c *Cluster) Run(t testing.TB, base []string, name string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	cmd := c.Command(ctx, base, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %s took longer than %v:\n%s", name, strings.Join(args, " "), Limit, out.String())
	}
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%s: %v", name, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// Await waits until done reports true, asking now and then, and fails the test
// after a minute with what it is that did not come.
func Await(t testing.TB, what func() string, done func() bool) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for !done() {
		select {
		case <-late.C:
			t.Fatalf("a minute has gone by: %s", what())
		case <-pause.C:
		}
	}
}

// Hostnames returns the output of "scontrol show hostnames" for a list; it needs no daemon.
// It fails for a list that Slurm refuses.
func Hostnames(t testing.TB, list string) ([]string, error) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=test\nSlurmctldHost=localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "scontrol", "show", "hostnames", list)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "SLURM_CONF="+conf), &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		t.Fatalf("scontrol show hostnames: %v: %s", err, stderr.String())
	}
	if stderr.Len() > 0 || strings.Contains(stdout.String(), "Invalid hostlist") { // its exit code is 0
		return nil, fmt.Errorf("scontrol: %s%s", stderr.String(), stdout.String())
	}
	return strings.Fields(stdout.String()), nil
}
