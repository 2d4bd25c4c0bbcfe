package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// Config describes what to run. Plan and Command are needed; all else has a default.
type Config struct {
	// Plan has the nodes: the local ones are started. The server of a plan that
	// [placement.Plan.RunsBus] is the caller's, which runs it and gives the plan that
	// [placement.Plan.BindBus] returns.
	Plan    placement.Plan
	Command []string // program and arguments of every node
	WorkDir string   // working folder of the nodes; empty: that of this process
	// Environ is the environment of the nodes, to which their own variables are
	// added; nil: that of this process, with the processors shared out: where
	// GOMAXPROCS is not set and there are several nodes, each gets its part.
	Environ []string
	// Watcher is the program and arguments of a process that calls [Watch] with its stdin,
	// which it gets from the launcher: it kills what is left of the nodes when the launcher
	// has been killed. Without one (nil), only nodes end then that have reached
	// parallel.Main and are able to act.
	Watcher []string
	// Farewell is the program and arguments of a process that calls connect.Farewell of parallel/connect:
	// it notifies the nodes of other launchers at once that the process of a node has ended without
	// leaving, whether the job recovers or not. Without one (nil), and where this launcher is killed as
	// well, they notice it by the silence of the node; in a job that recovers they then wait for it
	// forever, also where it is not started again.
	Farewell []string
	// Processors is the number of processors of this machine that the nodes share, where
	// Environ is nil; 0: all that this process may use.
	Processors int

	// Env is the part of the environment that all nodes share: token, main, folder, grace period (0:
	// 10 s), log format, seed, TLS and whether to recover. The fields of one
	// node are filled in from the plan.
	Env control.Env

	Replaced        bool          // with Env.AutoRecover: the launcher itself is restarted when it fails, so no failure of a node is final
	MaxRetries      int           // restarts of one node before the job fails, with Env.AutoRecover; 0: 3
	Backoff         time.Duration // before the first restart of a node, doubled for each further; 0: 500 ms
	MaxBackoff      time.Duration // bound of the back-off; 0: 30 s
	StartupInterval time.Duration // between the starts of two nodes; 0: none
	StatusInterval  time.Duration // how often nodes are asked for their status; 0: as they like
	// Silence bounds the time between two messages of a node that is ready: a node that exceeds it is
	// killed, and has failed; 0: 2 s more than Env.PeerTimeout.
	Silence time.Duration

	LogDir string // folder for one file a node, made if needed; empty: none
	// Stdout gets the lines that nodes write on stdout, and Stderr those that they write on
	// stderr and the launcher's own; nil: nowhere. Each is written through a [Stream], or
	// is one.
	Stdout, Stderr io.Writer

	// Signals are the signals that this process received. The launcher never
	// installs a handler itself; nil: none come.
	Signals <-chan os.Signal
}

// failGrace bounds the grace period after a failure, so that with the time to
// kill and to read the last output the job is gone within 10 s.
const failGrace = 9500 * time.Millisecond

func (c *Config) ensureDefaults() {
	setDefault(&c.Env.Grace, 10*time.Second)
	setDefault(&c.MaxRetries, 3)
	setDefault(&c.Backoff, 500*time.Millisecond)
	setDefault(&c.MaxBackoff, 30*time.Second)
	setDefault(&c.Silence, cmp.Or(c.Env.PeerTimeout, 8*time.Second)+2*time.Second)
	setDefault(&c.Env.LogFormat, "text")
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
	if c.Environ == nil {
		c.Environ = os.Environ()
		c.Environ = append(c.Environ, processors(c.Environ, c.Processors, len(c.Plan.Local()))...)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate joins all faults.
func (c *Config) validate() error {
	var faults []error
	if len(c.Plan.Local()) == 0 {
		faults = append(faults, errors.New("the plan has no node for this launcher"))
	}
	if c.Plan.RunsBus() && strings.HasSuffix(c.Plan.Bus, ":0") {
		faults = append(faults, errors.New("the plan's NATS server has no port: start it, and bind the plan to its port"))
	}
	if len(c.Command) == 0 {
		faults = append(faults, errors.New("no command"))
	} else if _, err := exec.LookPath(c.Command[0]); err != nil {
		faults = append(faults, fmt.Errorf("program: %w", err))
	}
	if c.MaxRetries < 0 {
		faults = append(faults, fmt.Errorf("max retries %d: want at least 0", c.MaxRetries))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"grace period", c.Env.Grace}, {"back-off", c.Backoff}, {"largest back-off", c.MaxBackoff},
		{"startup interval", c.StartupInterval}, {"status interval", c.StatusInterval}, {"silence", c.Silence},
	} {
		if d.value < 0 {
			faults = append(faults, fmt.Errorf("%s %v: want at least 0s", d.name, d.value))
		}
	}
	if f := c.Env.LogFormat; f != "text" && f != "json" {
		faults = append(faults, fmt.Errorf("log format %q: want text or json", f))
	}
	return errors.Join(faults...)
}

// RunDirPattern is the path of the folder that MakeRunDir would make for a
// job, with a "*" for what is not known before.
func RunDirPattern(job string) string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(base); base == "" || err != nil || !info.IsDir() {
		base = os.TempDir()
	}
	return filepath.Join(base, "ditask-"+job+"-*")
}

// MakeRunDir makes the folder for the sockets of one run of a job, under
// XDG_RUNTIME_DIR or else the folder for temporary files. Only this user can
// look into it, and no other run has it. The caller removes it.
func MakeRunDir(job string) (string, error) {
	pattern := RunDirPattern(job)
	dir, err := os.MkdirTemp(filepath.Dir(pattern), filepath.Base(pattern))
	if err != nil {
		return "", fmt.Errorf("socket folder: %w: set XDG_RUNTIME_DIR or TMPDIR to a folder that you can write, or use --protocol tcp", err)
	}
	return dir, nil
}

// processors shares the processors of this machine, at most limit of them, out to
// n nodes: nodes that all use all of them mostly wake each other's threads.
func processors(environ []string, limit, n int) []string {
	set := func(kv string) bool { return strings.HasPrefix(kv, "GOMAXPROCS=") }
	all := runtime.GOMAXPROCS(0)
	ours := all
	if limit > 0 {
		ours = min(all, limit)
	}
	if n < 2 && ours == all || slices.ContainsFunc(environ, set) {
		return nil
	}
	return []string{fmt.Sprintf("GOMAXPROCS=%d", max(ours/max(n, 1), 1))}
}
