//go:build linux

package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

// marker is in each secret of these tests, and must not be in any other text.
const marker = "hunter2hunter2hunter2"

// way is a way to give a secret. The flags are in the arguments of the command itself,
// which its user has typed, and in no other place.
type way struct {
	name       string
	env, flags []string
}

// ways are all ways to give each kind of secret.
func ways(t *testing.T) (all []way) {
	t.Helper()
	dir := t.TempDir()
	const pem = "-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----\n"
	for name, values := range map[string][]string{
		"token":     {marker},
		"tls-cert":  {pem},
		"tls-key":   {pem, "\n" + pem, "Bag Attributes\n" + pem},
		"tls-ca":    {pem},
		"nats-url":  {"nats://" + marker + "@127.0.0.1:1", "nats://me:" + marker + "@127.0.0.1:x", marker + "@h"},
		"redis-url": {"redis://:" + marker + "@127.0.0.1:1", "rediss://me:" + marker + "@127.0.0.1:1/x", marker + "@h"},
	} {
		for i, value := range values {
			variable := "DITASK_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "=" + value
			all = append(all,
				way{fmt.Sprintf("%s/flag/%d", name, i), nil, []string{"--" + name + "=" + value}},
				way{fmt.Sprintf("%s/variable/%d", name, i), []string{variable}, nil},
			)
		}
	}
	for name, text := range map[string]string{
		"token-file": marker, "tls-key": pem, "tls-cert": pem, "tls-ca": pem, "nats-creds": marker, "nats-nkey": marker,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w := way{name + "/file", nil, []string{"--" + name + "=" + file}}
		if strings.HasPrefix(name, "nats-") {
			w.flags = append(w.flags, "--nats-url=nats://127.0.0.1:1")
		}
		all = append(all, w)
	}
	return all
}

// recorders stand in for kubectl and sbatch. They write their arguments and their input
// into a file, the record.
func recorders(t *testing.T) (dir, record string) {
	t.Helper()
	dir, record = t.TempDir(), filepath.Join(t.TempDir(), "record")
	stub := "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" >> " + record + "\n"
	for name, more := range map[string]string{"kubectl": "[ \"$1\" = get ] || cat >> " + record, "sbatch": "cat >> " + record + "\necho 12"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(stub+more+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, record
}

// files returns the text of all files below a folder.
func files(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := fs.ReadFile(root, path)
		out.WriteString(path + "\n" + string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestMarkerIsNotWritten gives each secret in each way to each command that
// writes something, or calls another program: the secret is in nothing of it.
func TestMarkerIsNotWritten(t *testing.T) {
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	bin, record := recorders(t)
	watch := leak.Check(t)
	commands := map[string][]string{
		"slurm script":  {"slurm", "script", "--package", p.nodes},
		"slurm submit":  {"slurm", "submit", "--package", p.nodes, "--no-follow"},
		"k8s manifest":  {"k8s", "manifest", "--name", "dqn", "--image", "i", "--pods", "2"},
		"k8s jobset":    {"k8s", "manifest", "--kind", "jobset", "--name", "dqn", "--image", "i", "--env-secret", "own"},
		"k8s dijob":     {"k8s", "manifest", "--kind", "dijob", "--name", "dqn", "--image", "i", "--bus", "redis"},
		"k8s helm":      {"k8s", "manifest", "--name", "dqn", "--image", "i", "--env-secret", "own", "--helm", "chart"},
		"k8s kustomize": {"k8s", "manifest", "--name", "dqn", "--image", "i", "--bus", "nats", "--kustomize", "folder"},
		"k8s submit":    {"k8s", "submit", "--name", "dqn", "--image", "i", "--env-secret", "own", "--no-follow"},
		"plan":          {"plan", "-n", "2", "--protocol", "tcp"},
		"plan --json":   {"plan", "--json"},
		"doctor":        {"doctor"},
		"doctor --json": {"doctor", "--json"},
		"job":           {"--package", p.hello, "-n", "2", "--protocol", "tcp", "--join-timeout", "100ms"},
	}
	for _, w := range ways(t) {
		for name, args := range commands {
			if strings.HasPrefix(name, "doctor") && len(w.env) == 0 && !strings.Contains(w.name, "url") && !strings.HasPrefix(w.name, "nats") {
				continue // it has no such flag
			}
			t.Run(name+"/"+w.name, func(t *testing.T) {
				_ = os.Remove(record) // there may be none
				cmd := exec.CommandContext(t.Context(), p.ditask, append(args, w.flags...)...)
				cmd.Dir = t.TempDir()
				cmd.Env = append(append(watch.Environ(), "PATH="+bin+":"+os.Getenv("PATH")), w.env...)
				out, err := cmd.CombinedOutput() // some are refused
				if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
					t.Fatal(err)
				}
				recorded, _ := os.ReadFile(record) // nothing may have been called
				written := string(out) + string(recorded) + files(t, cmd.Dir)
				if len(written) == 0 || strings.Contains(written, marker) {
					t.Errorf("the secret is in:\n%s", written)
				}
			})
		}
	}
}

// TestMarkerIsInNoProcessOfAJob runs jobs whose server wants a secret, which end in two
// ways: their processes, logs and traces do not have it.
func TestMarkerIsInNoProcessOfAJob(t *testing.T) {
	nats, err := embedded.Start(t.Context(), embedded.Config{Token: marker, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nats.Close(t.Context()) }) // the context has ended: all clients are processes that have ended
	redis := redistest.Start(t, "--requirepass", marker)
	for name, url := range map[string]string{
		"nats":  strings.Replace(nats.URL(), "://", "://"+marker+"@", 1),
		"redis": strings.Replace(redis.URL(), "://", "://:"+marker+"@", 1),
	} {
		for _, w := range []way{
			{"flag", nil, []string{"--" + name + "-url", url}},
			{"variable", []string{"DITASK_" + strings.ToUpper(name) + "_URL=" + url}, nil},
			{"token by flag", []string{"DITASK_" + strings.ToUpper(name) + "_URL=" + url}, []string{"--token", marker}},
		} {
			for _, script := range []string{"wait", "1=fail"} {
				t.Run(name+"/"+w.name+"/"+script, func(t *testing.T) {
					args := append([]string{"-n", "3", "--trace", "trace", "--dir", "run", "--log-format", "json"}, w.flags...)
					j := newJob(t, nodes, append(args, "--", script)...)
					j.Env = append(j.Env, w.env...)
					var out bytes.Buffer
					if script == "wait" {
						j.start(t)
						for _, argv := range children(t, j.Process.Pid) {
							if strings.Contains(argv, marker) {
								t.Errorf("arguments of a process: %q", argv)
							}
						}
						_ = j.Process.Signal(syscall.SIGTERM)
						j.expect(t, j.Wait(), call.ExitPreempted)
					} else {
						j.Stdout = &out
						if err := j.Run(); err == nil {
							t.Error("it does not fail")
						}
					}
					written := out.String() + j.log.String() + files(t, j.Dir)
					if len(written) == 0 || strings.Contains(written, marker) {
						t.Errorf("the secret is in:\n%s", written)
					}
				})
			}
		}
	}
	redis.Kill() // before the check of what the jobs have left
}

// children returns the arguments of all processes below one.
func children(t *testing.T, pid int) (all []string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatal("no threads:", err)
	}
	for _, list := range lists {
		b, _ := os.ReadFile(list) // the thread may have ended
		for word := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if err != nil {
				t.Fatal(err)
			}
			all = append(append(all, string(argv)), children(t, child)...)
		}
	}
	return all
}
