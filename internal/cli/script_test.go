//go:build unix

package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/cli"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
)

// TestMain provides these programs to the scripts: ditask; signalled, a ditask that receives SIGINT at its end;
// testnode, a program without a task that executes its arguments; and runs, whose nodes
// write a checkpoint each.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ditask": func() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) },
		"signalled": func() {
			code := cli.Main(os.Args[1:], os.Stdout, os.Stderr)
			if p, err := os.FindProcess(os.Getpid()); err == nil && len(os.Args) > 2 { // it is no helper of the launcher
				_ = p.Signal(os.Interrupt)
				<-time.After(200 * time.Millisecond) // the signal comes to its own thread
			}
			os.Exit(code)
		},
		"testnode": func() { os.Exit(testnode(os.Args[1:])) },
		"runs":     func() { parallel.Main(writeRun) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			path := e.Getenv("PATH")
			for dir := range strings.SplitSeq(path, ":") {
				if _, err := os.Stat(dir + "/testnode"); err == nil {
					e.Setenv("TESTNODE", dir+"/testnode")
					e.Setenv("DITASK", dir+"/ditask")
					e.Setenv("RUNS", dir+"/runs")
				}
			}
			home, err := os.UserHomeDir()
			if err != nil {
				return err
			}
			// The user's own caches of Go, a cache of ditask for the script alone, and
			// a short folder for sockets.
			for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
				out, err := exec.Command("go", "env", name).Output()
				if err != nil {
					return err
				}
				e.Setenv(name, strings.TrimSpace(string(out)))
			}
			run, err := os.MkdirTemp("", "cli") //nolint:usetesting // the path of a socket is short
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(run) })
			if err := expired(e.WorkDir + "/expired"); err != nil {
				return err
			}
			docs, err := filepath.Abs("../../docs")
			if err != nil {
				return err
			}
			e.Setenv("DOCS", docs)
			e.Setenv("HOME", home)
			e.Setenv("XDG_CACHE_HOME", e.WorkDir+"/cache")
			e.Setenv("XDG_RUNTIME_DIR", run)
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv("GOFLAGS", "-mod=mod")
			e.Setenv("GOPROXY", "off")
			return nil
		},
	})
}

// expired writes a job's certificates of long ago.
func expired(dir string) error {
	end := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	made, err := certs.Make(nil, end.Add(-time.Hour), end)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{"ca.pem": made.CA, "node.pem": made.Cert, "node.key": made.Key} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// testnode executes arguments of the form "node=action", in which node is an id or *.
func testnode(args []string) int {
	env, _, err := control.Parse(os.LookupEnv)
	if err != nil {
		panic(err)
	}
	client, err := control.Open(env)
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	_ = client.Ready()
	for _, arg := range args {
		who, what, _ := strings.Cut(arg, "=")
		if who != "*" && who != fmt.Sprint(env.NodeID) {
			continue
		}
		switch what {
		case "wait":
			<-signals
			_ = client.Outcome(control.Outcome{Kind: control.Preempted, Node: env.NodeID})
			return 75
		case "fail":
			_ = client.Outcome(control.Outcome{Kind: control.Failure, Node: env.NodeID, Error: "out of luck"})
			return 4
		case "parent-term":
			_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
			<-signals
			return 75
		case "parent-int":
			_ = syscall.Kill(os.Getppid(), syscall.SIGINT)
			<-signals
			return 130
		case "shared":
			fmt.Printf("shared=%d\n", env.SharedMemory)
		case "env":
			w := bufio.NewWriter(os.Stdout)
			_, _ = fmt.Fprintf(w, "id=%d main=%s listen=%s attach=%d grace=%v seed=%d recover=%v token=%d\n",
				env.NodeID, env.Main, strings.SplitN(env.Listen, ":", 2)[0], len(env.Attach), env.Grace, env.Seed, env.AutoRecover, len(env.Token))
			_ = w.Flush()
		default:
			fmt.Println(what)
		}
	}
	_ = client.Outcome(control.Outcome{Kind: control.Success, Node: env.NodeID})
	return 0
}
