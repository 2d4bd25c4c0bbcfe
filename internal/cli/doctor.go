package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/cli/build"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/redisbus"
)

// The grades of a finding.
const (
	gradeOK   = "ok"
	gradeNote = "note" // some jobs will not run
	gradeBad  = "bad"  // no job will run
)

// finding is the result of one check of doctor.
type finding struct {
	Grade  string `json:"grade"`
	Check  string `json:"check"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// doctor checks the machine.
func (c command) doctor(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	faults := flags.Idle(ctx)
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca"} {
		if flags.FromCommandLine(ctx, name) && ctx.String("nats-url")+ctx.String("redis-url") == "" {
			faults = append(faults, fmt.Errorf("--%s: has no effect without --nats-url or --redis-url: leave --%s out", name, name))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return call.UsageError{Err: err}
	}
	limited, cancel := context.WithTimeout(ctx.Context, 30*time.Second)
	defer cancel()
	findings := []finding{checkGo(limited), checkSockets(limited), checkLoopback(limited), checkPort(limited), checkCache(), checkFiles(),
		checkSlurm(os.LookupEnv), checkKubernetes(os.LookupEnv)}
	files := [3]string{ctx.String("tls-cert"), ctx.String("tls-key"), ctx.String("tls-ca")}
	if u := flags.URL(ctx, "nats-url"); u != "" {
		findings = append(findings, checkNATS(limited, natsbus.Config{URL: u, CredsFile: ctx.Path("nats-creds"),
			NKeyFile: ctx.Path("nats-nkey")}, files))
	}
	if u := flags.URL(ctx, "redis-url"); u != "" {
		findings = append(findings, checkRedis(limited, u, files))
	}
	if ctx.Bool("json") {
		if err := c.WriteJSON(findings); err != nil {
			return err
		}
	} else if err := writeFindings(c.Stdout, findings); err != nil {
		return err
	}
	for _, f := range findings {
		if f.Grade == gradeBad {
			return call.ExitError(call.ExitFailure)
		}
	}
	return nil
}

// maxFound bounds the text of a finding in bytes: it may quote the go command or a server.
const maxFound = 2 << 10

func writeFindings(w io.Writer, findings []finding) error {
	for _, f := range findings {
		text := fmt.Sprintf("%-4s  %-12s %s\n", f.Grade, f.Check, printable.Cut(f.Found, maxFound))
		if f.Advice != "" {
			text += fmt.Sprintf("      %-12s -> %s\n", "", printable.Cut(f.Advice, maxFound))
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func checkGo(ctx context.Context) finding {
	f := finding{gradeOK, "go", "", ""}
	if _, err := exec.LookPath("go"); err != nil {
		f.Grade, f.Found = gradeNote, "the go command is not in PATH"
		f.Advice = "install Go 1.26 or newer, or give --package a built program"
		return f
	}
	out, err := build.Go(ctx, "", "env", "GOVERSION")
	f.Found = strings.TrimSpace(out) + fmt.Sprintf(", %d processors", runtime.NumCPU())
	if err != nil {
		f.Grade, f.Found = gradeNote, "the go command fails: "+strings.TrimSpace(out)
		f.Advice = "run go env, and correct the fault that it prints"
	}
	return f
}

// checkSockets binds a unix socket as a job would.
func checkSockets(ctx context.Context) finding {
	pattern := launch.RunDirPattern("12345678")
	f := finding{gradeOK, "sockets", "unix sockets work in " + filepath.Dir(pattern), ""}
	fail := func(err error, advice string) finding {
		return finding{gradeBad, "sockets", err.Error(), advice}
	}
	if _, err := placement.New(placement.Flags{RunDir: pattern}, placement.Site{}); err != nil {
		return fail(err, "set XDG_RUNTIME_DIR or TMPDIR to a shorter folder")
	}
	dir, err := launch.MakeRunDir("doctor")
	if err != nil {
		return fail(err, "set XDG_RUNTIME_DIR or TMPDIR to a folder that you can write")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "unix", filepath.Join(dir, "n0.sock"))
	if err != nil {
		return fail(err, "set XDG_RUNTIME_DIR or TMPDIR to a folder on a local disk, or use --protocol tcp")
	}
	if err := l.Close(); err != nil {
		return fail(err, "check the permissions and the file system of this folder")
	}
	return f
}

func checkLoopback(ctx context.Context) finding {
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return finding{gradeNote, "loopback", err.Error(), "bring the loopback interface up, or use unix sockets (the default)"}
	}
	return finding{gradeOK, "loopback", "tcp works on 127.0.0.1", ""}
}

// checkPort checks the port on which jobs of several machines listen.
func checkPort(ctx context.Context) finding {
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "tcp", fmt.Sprintf(":%d", placement.DefaultPort))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return finding{gradeNote, "port", fmt.Sprintf("port %d: %v", placement.DefaultPort, err),
			"for a job on several machines choose other --ports, or end the process that uses the port"}
	}
	return finding{gradeOK, "port", fmt.Sprintf("port %d, the first for jobs on several machines, is free", placement.DefaultPort), ""}
}

// clientTLS returns the TLS config for the files of a certificate, its key and an authority,
// or nil if no file is given.
func clientTLS(files [3]string) (*tls.Config, error) {
	if files == [3]string{} {
		return nil, nil
	}
	return certs.Client(files[0], files[1], files[2])
}

// checkRedis connects to the given server.
func checkRedis(ctx context.Context, url string, files [3]string) finding {
	fail := func(err error) finding {
		return finding{gradeBad, "redis", err.Error(), "jobs with this --redis-url will not run"}
	}
	config, err := clientTLS(files)
	if err != nil {
		return fail(err)
	}
	info, err := redisbus.Check(ctx, redisbus.Config{URL: url, Job: "doctor", TLS: config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fail(err)
	}
	return finding{gradeOK, "redis", fmt.Sprintf("%s answers in %v: version %s", redisbus.Public(url),
		info.RoundTrip.Round(time.Microsecond), info.Version), ""}
}

// checkNATS connects to the given server.
func checkNATS(ctx context.Context, cfg natsbus.Config, files [3]string) finding {
	fail := func(err error) finding {
		return finding{gradeBad, "nats", err.Error(), "jobs with this --nats-url will not run"}
	}
	var err error
	if cfg.TLS, err = clientTLS(files); err != nil {
		return fail(err)
	}
	cfg.Job, cfg.Name, cfg.ConnectTimeout, cfg.Logger = "doctor", "ditask doctor", time.Second, slog.New(slog.DiscardHandler)
	info, err := natsbus.Check(ctx, cfg)
	if err != nil {
		return fail(err)
	}
	return finding{gradeOK, "nats", fmt.Sprintf("%s answers in %v: NATS %s, messages of up to %d bytes", info.URL,
		info.RoundTrip.Round(time.Microsecond), info.Server, info.MaxPayload), ""}
}

func checkCache() finding {
	cache, err := build.Cache()
	if err == nil {
		err = safefile.MkdirAll(cache, 0o755)
	}
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(cache, "doctor-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return finding{gradeNote, "cache", err.Error(), "set XDG_CACHE_HOME to a folder that you can write, or give --package a built program"}
	}
	return finding{gradeOK, "cache", "programs are built into " + cache, ""}
}

// enoughFiles is the number of files that a node in a mesh of some hundred nodes needs,
// or a launcher of some hundred nodes.
const enoughFiles = 1024

func checkFiles() finding {
	limit, err := fileLimit()
	switch {
	case err != nil:
		return finding{gradeNote, "files", err.Error(), ""}
	case limit < enoughFiles:
		return finding{gradeNote, "files", fmt.Sprintf("a process may open %d files", limit),
			fmt.Sprintf("a launcher needs 5 for each of its nodes, and a node in a mesh 1 for each other node: ulimit -n %d", enoughFiles)}
	}
	return finding{gradeOK, "files", fmt.Sprintf("a process may open %d files", limit), ""}
}

// checkSlurm reports how this process reads Slurm's variables.
func checkSlurm(lookup func(string) (string, bool)) finding {
	get := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	found := present(get, append(slurm.Variables(), "SLURM_NTASKS")...)
	switch slurm.Where(lookup) {
	case slurm.Outside:
		return finding{gradeOK, "slurm", "not in a Slurm job", ""}
	case slurm.Allocation:
		return finding{gradeNote, "slurm", found, "in a Slurm job, but not in a step: start ditask with srun"}
	case slurm.Task:
	}
	step, err := slurm.Parse(lookup)
	if err != nil {
		return finding{gradeBad, "slurm", found, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	where := fmt.Sprintf("task %d of %d, number %d on host %s; job %s, ", step.ProcID, step.Tasks, step.LocalID, step.Hosts[step.NodeID],
		step.Job())
	switch {
	case step.Tasks == 1:
		where += "no other task"
	case len(step.Hosts) == 1:
		where += fmt.Sprintf("joins on port %d of this host", step.Port())
	default:
		where += fmt.Sprintf("joins on port %d of host %s", step.Port(), step.Hosts[0])
	}
	if step.Restarts > 0 {
		where += fmt.Sprintf(", requeued %d times: resumes", step.Restarts)
	}
	return finding{gradeOK, "slurm", where + "; " + found, ""}
}

// checkKubernetes reports how this process reads the variables of a pod.
func checkKubernetes(lookup func(string) (string, bool)) finding {
	get := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	found := present(get, append([]string{"KUBERNETES_SERVICE_HOST"}, kube.Variables()...)...)
	source := kube.Where(lookup)
	switch {
	case found == "":
		return finding{gradeOK, "kubernetes", "not in a pod", ""}
	case source == kube.Outside && get(kube.VarCompletionIndex) != "":
		return finding{gradeNote, "kubernetes", found,
			"a pod of an Indexed Job, whose nodes run alone: set DI_NODES in its template to all pods, such as dqn-[0-3].dqn"}
	case source == kube.Outside:
		return finding{gradeOK, "kubernetes", "no other pods: the nodes run alone; " + found, ""}
	}
	pod, err := kube.Parse(lookup)
	if err != nil {
		return finding{gradeBad, "kubernetes", found, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	where := fmt.Sprintf("pod %d of %d, by %s; job %s, ", pod.Rank, pod.Size, pod.Source, pod.Job())
	switch {
	case pod.Size == 1:
		where += "no other task"
	case pod.Hosts == nil:
		where += "joins at " + pod.Leader
	default:
		where += "this is " + pod.Hosts[pod.Rank]
	}
	return finding{gradeOK, "kubernetes", where + "; " + found, ""}
}

// present returns the variables that are set, with their values.
func present(getenv func(string) string, names ...string) string {
	var out []string
	for _, name := range names {
		if v := getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return strings.Join(out, " ")
}
