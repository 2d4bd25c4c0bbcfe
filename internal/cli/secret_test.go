//go:build linux

package cli_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestAutoTLSIsSpokenOnTheWire connects to a node of a whole job as an unauthenticated client.
func TestAutoTLSIsSpokenOnTheWire(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--protocol", "tcp", "--tls", "auto")
	pids := j.start(t)
	addr := strings.TrimPrefix(environ(t, pids[0])["DITASK_LISTEN"], "tcp://")
	unverified := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // an unauthenticated client does not verify the node
	conn, err := tls.Dial("tcp", addr, unverified)
	if err != nil {
		t.Fatal(err)
	}
	if name := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "ditask node" {
		t.Errorf("the node shows a certificate of %s", name)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	_ = conn.Close()
	_ = j.Process.Signal(syscall.SIGTERM)
	j.expect(t, j.Wait(), 75)
	if n := strings.Count(j.log.String(), "reason=tls"); n != 1 {
		t.Errorf("the unauthenticated client is logged %d times:\n%s", n, j.log.String())
	}
}

// environ returns the environment of a process of ours.
func environ(t *testing.T, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		out[name] = value
	}
	return out
}

// TestSecretsAreNotReadable greps all that the command and its nodes write for
// the token and the key, in jobs that end in every way.
func TestSecretsAreNotReadable(t *testing.T) {
	const token = "correct-horse-battery-staple"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := regexp.MustCompile(token + `|[A-Z ]PRIVATE KEY|\b` + fmt.Sprintf("%x", token))
	ways := map[string][]string{"variable": {"DITASK_TOKEN=" + token}, "file": {"DITASK_TOKEN_FILE=" + file}}
	for way, env := range ways {
		for _, format := range []string{"text", "json"} {
			for _, script := range []string{"1=fail", "1=panic", "1=kill", "wait"} {
				t.Run(strings.Join([]string{way, format, script}, "/"), func(t *testing.T) {
					j := newJob(t, nodes, "-n", "3", "--protocol", "tcp", "--tls", "auto", "--log-format", format, "--dir", "run", "--", script)
					j.Env = append(j.Env, env...)
					var out bytes.Buffer
					if script == "wait" {
						for _, pid := range j.start(t) {
							look(t, secret, pid, way == "variable")
						}
						_ = j.Process.Signal(syscall.SIGTERM)
						j.expect(t, j.Wait(), 75)
					} else {
						j.Stdout = &out
						if err := j.Run(); err == nil {
							t.Error("it does not fail")
						}
					}
					written := out.String() + j.log.String() + logs(t, filepath.Join(j.Dir, "run"))
					if len(written) == 0 || secret.MatchString(written) {
						t.Errorf("%s is in:\n%s", secret.FindString(written), written)
					}
				})
			}
		}
	}
	for _, args := range []string{"plan -n 3 --protocol tcp", "plan --json --tls auto", "doctor", "doctor --json", "version", "--help",
		"plan --help", "completion bash", "-p nowhere", "-p . --grace x", "-n 3 --labels a*"} {
		p, err := build()
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range ways {
			cmd := exec.Command(p.ditask, strings.Fields(args)...)
			cmd.Env = append(os.Environ(), env...)
			written, _ := cmd.CombinedOutput() // some of them are refused
			if len(written) == 0 || secret.Match(written) {
				t.Errorf("ditask %s: %s is in:\n%s", args, secret.Find(written), written)
			}
		}
	}
}

// look checks that every user of the machine can read no secret of a node, and that its
// environment, which only its own user can read, has its secrets.
func look(t *testing.T, secret *regexp.Regexp, pid int, variable bool) {
	t.Helper()
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(argv) == 0 || secret.Match(argv) {
		t.Errorf("arguments of a node: %q", argv)
	}
	env := environ(t, pid)
	if secret.MatchString(env["DITASK_TOKEN"]) != variable || !secret.MatchString(env["DITASK_TLS_KEY"]) {
		t.Error("a node does not have its secrets")
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o400 {
		t.Errorf("the environment of a process has mode %v", info.Mode().Perm())
	}
}

// logs are all files below a folder.
func logs(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no log files:", err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	return out.String()
}
