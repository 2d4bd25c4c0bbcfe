//go:build unix

package parallel

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

// The texts that a node itself writes on stderr are safe to print: its log in both formats, its
// errors, and those of its environment.
func TestOutputOfANodeIsPrintable(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		log := newLogger(control.Env{LogFormat: format}, true, &b)
		log.Warn(logtest.Hostile, "err", errors.New(logtest.Hostile), "peer", "a\x7f", logtest.Hostile, "b\u009b")
		if faults := logtest.Faults(b.String()); faults != "" || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s: %s", format, faults)
		}
		var fields map[string]string
		if format == "json" {
			fields = map[string]string{}
			line := strings.Replace(b.String(), `"node":0,`, "", 1)
			if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["msg"] != logtest.Hostile || fields["peer"] != "a\x7f" {
				t.Errorf("%v: %q", err, fields)
			}
		}
	}
	for _, err := range []error{
		errors.New(logtest.Hostile), &task.PreemptError{Node: 7, Reason: logtest.Hostile}, &task.RemoteError{Node: 2, Reason: logtest.Hostile},
	} {
		p := launch(t, control.Env{NodeID: 7})
		p.ended(err)
		p.logPreempted()
		if got := p.stderr.String(); logtest.Faults(got) != "" || got == "" {
			t.Errorf("%T: %s", err, logtest.Faults(got))
		}
		if got := p.outcome(t).Error; logtest.Faults(got) != "" {
			t.Errorf("%T: the launcher: %s", err, logtest.Faults(got))
		}
	}
	for name := range map[string]bool{control.VarNodeID: true, control.VarMain: true, control.VarTokenFile: true, control.VarTLSCert: true} {
		var b bytes.Buffer
		env := map[string]string{
			control.VarNodeID: "0", control.VarNodes: "2", control.VarJobID: "j", control.VarListen: "tcp://127.0.0.1:0",
			control.VarDir: t.TempDir(),
		}
		env[name] = logtest.Hostile
		code := runMain(lookupOf(env), &b, []Func{nil})
		if got := b.String(); code != ExitUsage || got == "" || logtest.Faults(got) != "" {
			t.Errorf("%s: code %d, %s: %q", name, code, logtest.Faults(got), got)
		}
	}
}

// An unauthenticated process at the address of another node refuses with a text that would clear
// the screen and write a line. All output of the node is safe to print, in both formats.
func TestUnauthenticatedRefusalIsPrintable(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]any{"refuse": map[string]string{"code": "job",
			"reason": logtest.Hostile + strings.Repeat("x", 8<<10)}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...))
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}()
		var b bytes.Buffer
		code := runMain(lookupOf(map[string]string{
			control.VarNodeID: "1", control.VarNodes: "2", control.VarJobID: "j", control.VarAttach: "tcp://" + l.Addr().String(),
			control.VarDir: t.TempDir(), control.VarLogFormat: format, control.VarToken: "secret",
		}), &b, []Func{func(ctx context.Context, n *Node) error { return task.New[struct{}](n).Run(ctx) }})
		_ = l.Close()
		<-ended
		if got := b.String(); code != ExitFailure || logtest.Faults(got) != "" || !strings.Contains(got, `refused (job): \x1b[2J`) ||
			len(got) > 8<<10 {
			t.Errorf("%s: code %d, %s: %q", format, code, logtest.Faults(got), got)
		}
	}
}
