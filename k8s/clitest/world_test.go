package clitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ditask/ditask/k8s/internal/controller"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// cluster is that of all tests of this package.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) { cluster = c })
}

// build builds ditask, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ditask")
	cmd := exec.CommandContext(t.Context(), "go", "build", fmt.Sprintf("-race=%v", race), "-o", program, "./ditask")
	cmd.Dir = filepath.Join(kubetest.Repository(), "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// user is a user of ditask and kubectl, in a namespace.
type user struct {
	*kubetest.World

	program string
}

func newUser(t *testing.T) *user {
	t.Helper()
	return &user{kubetest.NewWorld(t, cluster), build(t)}
}

// command is ditask k8s with arguments, in the namespace.
func (u *user) command(args ...string) *exec.Cmd {
	at := len(args)
	for i, arg := range args {
		if arg == "--" {
			at = i
			break
		}
	}
	all := append([]string{"k8s"}, args[:at]...)
	all = append(append(all, "--namespace", u.Namespace), args[at:]...)
	cmd := exec.CommandContext(u.Ctx, u.program, all...)
	cmd.WaitDelay = time.Minute // a kubectl that outlives it may hold its output open
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.Kubeconfig, "KUBECACHEDIR="+filepath.Join(filepath.Dir(u.program), "cache"),
		"PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	return cmd
}

// result is what a command has printed, and its exit code.
type result struct {
	args           []string
	stdout, stderr string
	code           int
}

// run runs ditask k8s.
func (u *user) run(args ...string) result {
	u.Helper()
	var stdout, stderr bytes.Buffer
	cmd := u.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		u.Fatal(err)
	}
	r := result{args, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	u.Logf("$ ditask k8s %s\n%s%sexit code %d", strings.Join(args, " "), r.stdout, r.stderr, r.code)
	return r
}

// expect checks the exit code of a command, and what its output contains.
func (u *user) expect(r result, code int, contains ...string) result {
	u.Helper()
	if r.code != code {
		u.Errorf("%v: exit code %d, want %d", r.args, r.code, code)
	}
	for _, want := range contains {
		if !strings.Contains(r.stdout+r.stderr, want) {
			u.Errorf("%v: no %q in:\n%s%s", r.args, want, r.stdout, r.stderr)
		}
	}
	return r
}

// names returns the objects of the namespace that a job is made of, as kubectl prints them.
func (u *user) names(kinds string) string {
	u.Helper()
	out, err := u.Kubectl(u.Ctx, "get", kinds, "--namespace", u.Namespace, "--output=name")
	u.Must(err)
	return out
}

// watched is a command that runs beside the test.
type watched struct {
	*exec.Cmd

	tell func()
	code int // once it has ended

	mu    sync.Mutex
	text  string // guarded by mu: what it has printed
	ended bool   // guarded by mu
}

// Write takes what the command prints.
func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.text += string(b)
	w.mu.Unlock()
	w.tell()
	return len(b), nil
}

func (w *watched) output() (text string, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text, w.ended
}

// start starts ditask k8s; changed is called whenever it prints text.
func (u *user) start(changed func(), args ...string) *watched {
	u.Helper()
	w := &watched{Cmd: u.command(args...), tell: changed}
	w.Stdout, w.Stderr = w, w
	u.Must(w.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Wait() // the code says it
		w.mu.Lock()
		w.code, w.ended = w.ProcessState.ExitCode(), true
		w.mu.Unlock()
		changed()
	}()
	u.Cleanup(func() {
		_ = w.Process.Kill() // it may have ended
		<-done
		text, _ := w.output()
		u.Logf("$ ditask k8s %s\n%sexit code %d", strings.Join(args, " "), text, w.code)
	})
	return w
}

// says waits until a command has printed a text; ends until it has ended.
func (u *user) says(w *watched, want string) {
	u.Helper()
	u.Until("the command says "+want, func() (bool, any) {
		text, ended := w.output()
		if ended && !strings.Contains(text, want) {
			u.Fatalf("it has ended, and has not said %q:\n%s", want, text)
		}
		return strings.Contains(text, want), text
	})
}

func (u *user) ends(w *watched, code int) {
	u.Helper()
	u.Until("the command ends", func() (bool, any) {
		text, ended := w.output()
		return ended, text
	})
	if w.code != code {
		text, _ := w.output()
		u.Errorf("exit code %d, want %d:\n%s", w.code, code, text)
	}
}

// controllers runs controllers of Kubernetes until the test ends.
func (u *user) controllers(names string) {
	u.Helper()
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"),
		"--kubeconfig", u.Kubeconfig, "--controllers="+names, "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials=false")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	u.Must(cmd.Start())
	u.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
		if u.Failed() {
			u.Logf("log of the controllers:\n%s", log.String())
		}
	})
}

// operate runs the operator of DIJob until the test ends.
func (u *user) operate() {
	u.Helper()
	options := controller.CacheOptions()
	options.DefaultNamespaces = map[string]cache.Config{u.Namespace: {}}
	mgr, err := ctrl.NewManager(u.Config, ctrl.Options{
		Scheme: kubetest.Scheme(), Cache: options,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	u.Must(err)
	r := &controller.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("ditask-operator")}
	u.Must(r.Setup(context.Background(), mgr))
	kubetest.Run(u.T, mgr.Start)
}

// logs is the part of a kubelet that has the logs of pods.
type logs struct {
	begin time.Time // of the first line of each pod

	mu      sync.Mutex
	lines   map[string][]string // guarded by mu: by name of the pod
	changed chan struct{}       // guarded by mu: closed at a change
	over    map[string]bool     // guarded by mu
	breaks  int                 // guarded by mu: how many copies break off after the first line
}

// startLogs makes the node on which pods run, with their logs.
func (u *user) startLogs() *logs {
	u.Helper()
	l := &logs{begin: time.Now().UTC(), lines: map[string][]string{}, over: map[string]bool{}, changed: make(chan struct{})}
	server := httptest.NewTLSServer(l)
	u.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	u.Must(err)
	number, err := strconv.ParseInt(port, 10, 32)
	u.Must(err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "test-node"}}
	u.Must(u.Client.Create(u.Ctx, node))
	u.Cleanup(func() { u.Must(u.Client.Delete(context.WithoutCancel(u.Ctx), node)) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	u.Must(u.Client.Status().Update(u.Ctx, node))
	return l
}

// write adds lines to the log of a pod, and says whether they are the last.
func (l *logs) write(pod string, over bool, lines ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range lines {
		at := l.begin.Add(time.Duration(len(l.lines[pod])) * time.Nanosecond)
		l.lines[pod] = append(l.lines[pod], at.Format("2006-01-02T15:04:05.000000000Z07:00")+" "+line)
	}
	l.over[pod] = over
	close(l.changed)
	l.changed = make(chan struct{})
}

// ServeHTTP answers /containerLogs/NAMESPACE/POD/CONTAINER.
func (l *logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	words := strings.Split(r.URL.Path, "/")
	if len(words) != 5 || words[1] != "containerLogs" || words[4] != "node" || r.URL.Query().Get("timestamps") != "true" {
		http.Error(w, "what? "+r.URL.String(), http.StatusNotFound)
		return
	}
	pod, follow := words[3], r.URL.Query().Get("follow") == "true"
	for sent := 0; ; {
		l.mu.Lock()
		lines, over, changed := l.lines[pod], l.over[pod], l.changed
		broken := follow && l.breaks > 0 && len(lines) > 0
		if broken {
			l.breaks--
			lines = lines[:1]
		}
		l.mu.Unlock()
		if tail, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil && sent == 0 {
			sent = max(len(lines)-tail, 0)
		}
		for ; sent < len(lines); sent++ {
			_, _ = fmt.Fprintln(w, lines[sent]) // the other side may have gone
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if !follow || over || broken {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// unprivileged is a user without any rights.
func unprivileged() rest.ImpersonationConfig {
	return rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
}
