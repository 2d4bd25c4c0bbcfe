//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// ours is in the names of everything that remains without a cleanup.
	ours = "ditask-e2e"
	// folder has all files. Layers of images need a file system on a disk.
	folder = "/var/tmp/" + ours
	// cgroup is where containerd puts the pods, below each of the mounted hierarchies.
	cgroups, cgroup = "/sys/fs/cgroup", "k8s.io"
	// stage determines which of the three processes this is: the supervisor, the first process of
	// the namespaces, or the test.
	stage = "DITASK_E2E_STAGE"
	// unavailable is the exit code of a machine that cannot run the test.
	unavailable = 69
)

func TestMain(m *testing.M) {
	switch os.Getenv(stage) {
	case "init":
		os.Exit(beInit())
	case "test":
		os.Exit(m.Run())
	default:
		os.Exit(supervise())
	}
}

// supervise runs the test in its own namespaces, and cleans up before and after.
func supervise() int {
	if missing := missingParts(); len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "e2e: this machine cannot run it:\n  %s\n", strings.Join(missing, "\n  "))
		return unavailable
	}
	lock, err := os.OpenFile("/run/lock/"+ours, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: another run holds /run/lock/"+ours+":", err)
		return 1
	}
	defer func() { _ = os.Remove(lock.Name()) }()
	if err := cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: clean up after an earlier run:", err)
		return 1
	}
	before := traces()
	code := runInit()
	if err := cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: clean up:", err)
		code = 1
	}
	for _, left := range traces() {
		if !slices.Contains(before, left) {
			fmt.Fprintln(os.Stderr, "e2e: left behind:", left)
			code = 1
		}
	}
	return code
}

// runInit runs this program as the first process of new namespaces, and returns its exit code. A
// signal to this process, or its end, kills the program.
func runInit() int {
	runtime.LockOSThread() // the child would end with its thread
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stage+"=init")
	cmd.SysProcAttr = newSpaces()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1)
	} else if err != nil {
		return 1
	}
	return 0
}

// newSpaces requests new namespaces. Mounts in them are not visible outside.
func newSpaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
		Unshareflags: syscall.CLONE_NEWNS}
}

// beInit is the first process of the namespaces: it runs the test, and reaps processes whose
// parents have ended. When it ends the kernel kills all others.
func beInit() int {
	if err := errors.Join(unix.Mount("proc", "/proc", "proc", 0, ""), run("ip", "link", "set", "lo", "up")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stage+"=test")
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid:
			fmt.Fprintln(os.Stderr, "e2e: the test was ended by", status.Signal())
			return 1
		}
	}
}

// missingParts returns the programs that the test needs and this machine does not have.
func missingParts() (missing []string) {
	if os.Geteuid() != 0 {
		return []string{"not root"}
	}
	for _, program := range []string{"containerd", "runc", "ctr", "/usr/lib/cni/bridge", "ip", "iptables", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, "no "+program+": on Debian make e2e-kubernetes installs it")
		}
	}
	for _, v := range []string{"KUBEBUILDER_ASSETS", "COREDNS"} {
		if os.Getenv(v) == "" {
			missing = append(missing, v+" is not set: make e2e-kubernetes does it")
		}
	}
	if len(hierarchies()) == 0 {
		missing = append(missing, "no cgroups at "+cgroups)
	}
	probe := exec.Command("ip", "link", "add", "probe", "type", "bridge")
	probe.SysProcAttr = newSpaces()
	if out, err := probe.CombinedOutput(); err != nil {
		missing = append(missing, fmt.Sprintf("no network, mount and process namespaces with a bridge: %v %s", err, bytes.TrimSpace(out)))
	}
	if kinds, err := os.ReadFile("/proc/filesystems"); err != nil || !bytes.Contains(kinds, []byte("\toverlay\n")) {
		missing = append(missing, "no file system overlay: modprobe overlay")
	}
	return missing
}

// hierarchies returns the folders in which a cgroup can be made: one, or with version 1
// one for each controller.
func hierarchies() []string {
	files, _ := filepath.Glob(cgroups + "/*/cgroup.procs")
	if _, err := os.Stat(cgroups + "/cgroup.controllers"); err == nil {
		files = []string{cgroups + "/cgroup.procs"}
	}
	for i := range files {
		files[i] = filepath.Dir(files[i])
	}
	return files
}

// cleanUp removes the folder and the cgroups, which have no processes any more.
func cleanUp() error {
	err := os.RemoveAll(folder)
	for _, h := range hierarchies() {
		err = errors.Join(err, removeCgroup(filepath.Join(h, cgroup)))
	}
	return err
}

// removeCgroup removes a cgroup and those in it, the innermost first, unless one has processes:
// then they belong to another Kubernetes. The kernel may need a moment to release a cgroup whose
// processes have just been killed.
func removeCgroup(path string) error {
	var all []string
	busy := false
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			procs, _ := os.ReadFile(filepath.Join(p, "cgroup.procs"))
			all, busy = append(all, p), busy || len(procs) > 0
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || busy {
		return nil
	}
	for _, p := range slices.Backward(all) {
		var last error
		if wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			last = os.Remove(p)
			return last == nil, nil
		}) != nil {
			err = errors.Join(err, last)
		}
	}
	return err
}

// traces returns the traces that a run could leave on the machine, as text.
func traces() (found []string) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, ours) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	for _, pattern := range []string{"/sys/class/net/hub", "/sys/class/net/node-*", cgroups + "/" + cgroup, cgroups + "/*/" + cgroup} {
		paths, _ := filepath.Glob(pattern)
		found = append(found, paths...)
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range commands {
		line, _ := os.ReadFile(c)
		if text := string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})); strings.Contains(text, ours) || strings.Contains(text,
			"containerd-shim") {
			found = append(found, "process "+filepath.Base(filepath.Dir(c))+" "+text)
		}
	}
	return found
}

// run runs a program that is quick, and has its output in the error.
func run(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
