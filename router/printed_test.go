package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// hostile is a long text in JSON that controls the terminal of its reader.
func hostile(t *testing.T) string {
	t.Helper()
	b, err := json.Marshal(logtest.Hostile + strings.Repeat("x", 12<<10))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// longest is the length that the quoted part of one message of a log or an error may have.
const longest = 2 << 10

func checkPrinted(t *testing.T, what, text string, want ...string) {
	t.Helper()
	if faults := logtest.Faults(text); faults != "" {
		t.Errorf("%s: %s", what, faults)
	}
	if len(text) > longest {
		t.Errorf("%s: %d bytes", what, len(text))
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s: want %q in %q", what, w, text)
		}
	}
}

// rawRouter is a node whose log is written as it is.
func rawRouter(t *testing.T, cfg Config) (*Router, *logtest.Buffer) {
	t.Helper()
	r := openRouter(t, cfg)
	log := &logtest.Buffer{}
	r.log = slog.New(logtest.Raw(log))
	return r, log
}

// The answer at an address is printed escaped and cut, before and after the other side has proved that
// it is of this job.
func TestPrintedTextOfAListener(t *testing.T) {
	bad, short := hostile(t), string(must(json.Marshal(logtest.Hostile)))
	good, err := json.Marshal(partner(t, 2).hello(""))
	if err != nil {
		t.Fatal(err)
	}
	framed := func(body string) []byte { return append(le.AppendUint32(nil, uint32(len(body))), body...) }
	with := func(fields string) string { return strings.TrimSuffix(string(good), "}") + "," + fields + "}" }
	for name, c := range map[string]struct {
		answer []byte // in place of an answer
		hello  string // with a proof
		then   []byte // after the proof of the other side
		want   string
	}{
		"refusal":                   {answer: framed(`{"refuse":{"code":` + short + `,"reason":` + bad + `}}`), want: `\x1b[2J`},
		"a number":                  {answer: framed(`{"proof":` + strings.Repeat("1", 12<<10) + `}`), want: "malformed frame"},
		"another job":               {hello: with(`"job":` + bad), want: `u009b`},
		"another version, protocol": {hello: with(`"protocol":9,"version":` + bad), want: `\x1b[2J`},
		"refusal of the proof": {hello: string(good), then: framed(`{"refuse":{"code":` + short + `,"reason":` + bad + `}}`),
			want: `\u202e`},
		"hello that is a number": {hello: with(`"node":` + strings.Repeat("1", 12<<10)), want: "malformed frame"},
	} {
		t.Run(name, func(t *testing.T) {
			hub := partner(t, 2)
			r, log := rawRouter(t, Config{Job: "j", Token: []byte("secret"), Node: 1})
			mine, theirs := net.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = theirs.Close() }()
				var h hello
				if _, err := io.ReadFull(theirs, make([]byte, len(magic))); err != nil {
					return
				}
				said, err := readMsg(theirs, &h)
				if err != nil {
					return
				}
				if c.answer != nil {
					_, _ = theirs.Write(c.answer)
					return
				}
				both := conversation{client: said, server: []byte(c.hello)}
				_, _ = writeMsg(theirs, nil, answer{Hello: json.RawMessage(c.hello), Proof: hub.prove("listen", both)})
				var p proof
				if _, err := readMsg(theirs, &p); err == nil {
					_, _ = theirs.Write(c.then)
				}
			}()
			_, err := r.callJoin(mine, nil, false)
			_ = mine.Close()
			<-ended
			if err == nil {
				t.Fatal("no error")
			}
			checkPrinted(t, "the error", err.Error(), c.want)
			if no, ok := errors.AsType[*RefusedError](err); ok {
				checkPrinted(t, "the reason", no.Reason)
				checkPrinted(t, "the code", no.Code)
			}
			checkPrinted(t, "the log", log.String())
		})
	}
}

// The messages of a caller, and the answers to it, are logged escaped and cut.
func TestPrintedTextOfACaller(t *testing.T) {
	bad := hostile(t)
	for name, c := range map[string]struct {
		field, value string // of the hello
		refuse       bool   // the proof refuses
		log, said    string
	}{
		"job":      {"job", bad, false, `u202e`, "belongs to job"},
		"version":  {"protocol", `9,"version":` + bad, false, `\x1b[2J`, "speaks protocol 9"},
		"purpose":  {"purpose", bad, false, `x1b[2J`, "purpose"},
		"a number": {"node", strings.Repeat("1", 12<<10), false, "malformed frame", ""},
		"refusal":  {"node", "1", true, "", "{"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, log := rawRouter(t, Config{Job: "j", Token: []byte("secret"), Node: 2})
			caller := partner(t, 1)
			b, err := json.Marshal(caller.hello(purposeJoin))
			if err != nil {
				t.Fatal(err)
			}
			mine := fmt.Appendf(nil, "%s,%q:%s}", b[:len(b)-1], c.field, c.value) // of two values the last counts
			ours, theirs := net.Pipe()
			received := make(chan string, 1) // one result
			go func() {
				defer func() { _ = ours.Close() }()
				_, _ = ours.Write(append(le.AppendUint32(magic[:], uint32(len(mine))), mine...))
				var a answer
				said, _ := readMsg(ours, &a)
				if a.Refuse == nil && a.Hello != nil {
					pr := caller.prove("dial", conversation{client: mine, server: a.Hello})
					p := fmt.Sprintf(`{"proof":%s,"got":"0"`, must(json.Marshal(pr)))
					if c.refuse {
						p += `,"refuse":{"code":"lost","reason":` + bad + `}`
					}
					p += "}"
					_, _ = ours.Write(append(le.AppendUint32(nil, uint32(len(p))), p...))
					rest, _ := io.ReadAll(ours)
					said = rest[min(4, len(rest)):]
				}
				received <- string(said)
			}()
			_ = theirs.SetDeadline(time.Now().Add(10 * time.Second)) // only a fault takes that long
			hub.serve(theirs, nil)
			checkPrinted(t, "the answer", <-received, c.said)
			checkPrinted(t, "the log", log.String(), c.log)
			hub.mu.Lock()
			failure := fmt.Sprint(hub.failure)
			hub.mu.Unlock()
			if checkPrinted(t, "the failure", failure); c.refuse != strings.Contains(failure, "cut off from the job") {
				t.Error(failure)
			}
		})
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// unreachable is a transport whose errors have the address, as those of package net do.
type unreachable struct{ noTransport }

func (unreachable) Dial(_ context.Context, addr string) (net.Conn, error) {
	return nil, fmt.Errorf("dial %s: no such host", addr)
}

// The texts that a peer sends in a session are printed escaped and cut.
func TestPrintedTextOfAPeer(t *testing.T) {
	bad := hostile(t)
	raw := logtest.Hostile + strings.Repeat("x", 12<<10)
	declare := func(n uint16, name, schema string) []byte {
		return appendFrame(nil, frameDeclare, 0, n, []byte(`{"name":`+name+`,"delivery":"reliable","fingerprint":"7","schema":`+schema+`}`))
	}
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"bye":              {frame: appendFrame(nil, frameBye, 0, 0, []byte(raw)), want: `left: \x1b[2J`},
		"name of an event": {frame: declare(1, bad, `""`), want: `malformed frame: event "\x1b[2J`},
		"short name":       {frame: declare(1, `"a\u009b"`, `""`), want: `malformed frame: event "a\u009b"`},
		"empty name":       {frame: declare(1, `""`, `""`), want: `malformed frame: event ""`},
		"name of a barrier": {frame: appendFrame(nil, frameBarrier, 0, 0, []byte(`{"name":"a\u009b","round":1}`)),
			want: `malformed frame: barrier "a\u009b"`},
		"number of a barrier": {frame: appendFrame(nil, frameBarrier, 0, 0, []byte(`{"round":`+strings.Repeat("1", 12<<10)+`}`)),
			want: "malformed frame: barrier"},
		"number of a member": {frame: appendFrame(nil, frameMembers, 0, 0, []byte(`[{"id":`+strings.Repeat("1", 12<<10)+`}]`)),
			want: "malformed frame: members"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logtest.Buffer{}
			g := meet(t, func(c *Config) { c.Logger = slog.New(logtest.Raw(log)) })
			g.say(t, c.frame)
			checkPrinted(t, "the loss", g.lost(), c.want)
			checkPrinted(t, "the log", log.String())
		})
	}
	t.Run("schema", func(t *testing.T) {
		g := meet(t, nil)
		g.say(t, declare(1, `"f"`, bad))
		g.say(t, appendFrame(nil, frameReady, 0, 0, nil))
		r := g.r
		if err := r.await(t.Context(), func() (bool, error) { return r.peers[7].ready, nil }); err != nil {
			t.Fatal(err)
		}
		_, err := r.Channel(Spec{Name: "f"}, nil)
		if err == nil || len(err.Error()) > maxSchema+longest {
			t.Fatal(err)
		}
		if faults := logtest.Faults(err.Error()); faults != "" || !strings.Contains(err.Error(), `\x1b[2J`) {
			t.Error(faults)
		}
	})
	t.Run("address of a member", func(t *testing.T) {
		g := meet(t, func(c *Config) { c.Transport = unreachable{} })
		g.say(t, appendFrame(nil, frameMembers, 0, 0, []byte(`[{"id":1,"incarnation":"1","addrs":[`+bad+`]}]`)))
		r := g.r
		if err := r.await(t.Context(), func() (bool, error) { return len(r.trouble) > 0, nil }); err != nil {
			t.Fatal(err)
		}
		checkPrinted(t, "what Start reports", r.troubles(), `\x1b[2J`)
	})
	t.Run("farewell", func(t *testing.T) {
		g := meet(t, nil)
		g.say(t, appendFrame(nil, frameFarewell, 0, 0, []byte(`{"node":9,"incarnation":"1","final":true,"reason":`+bad+`}`)))
		r := g.r
		if err := r.await(t.Context(), func() (bool, error) { return r.failure != nil, nil }); err != nil {
			t.Fatal(err)
		}
		checkPrinted(t, "the failure", r.failure.Error(), `\x1b[2J`)
	})
}

// The labels, version and addresses of a hello are safe to print wherever they are used.
func TestPrintedTextOfAHello(t *testing.T) {
	var h hello
	list := "[" + hostile(t) + `,"gpu"]`
	if err := json.Unmarshal([]byte(`{"version":`+hostile(t)+`,"labels":`+list+`,"addrs":`+list+"}"), &h); err != nil {
		t.Fatal(err)
	}
	r, log := rawRouter(t, Config{Node: 5, Version: "v1"})
	s, err := r.admit(h)
	if err != nil {
		t.Fatal(err)
	}
	checkPrinted(t, "the labels", strings.Join(s.peer.Labels, " "), `\x1b[2J`, " gpu")
	checkPrinted(t, "the addresses", strings.Join(s.addrs, " "), `\x1b[2J`, " gpu")
	checkPrinted(t, "the log", log.String(), "versions differ", `\x1b[2J`)
}

// Gone receives reasons from its caller, such as the last output of a process.
func TestPrintedReasonOfGone(t *testing.T) {
	r, _ := rawRouter(t, Config{Node: 5})
	r.Gone(Farewell{Node: 7, Incarnation: 1, Reason: logtest.Hostile, Final: true})
	if err := r.await(t.Context(), func() (bool, error) { return r.failure != nil, nil }); err != nil {
		t.Fatal(err)
	}
	checkPrinted(t, "the failure", r.failure.Error(), `\x1b[2J`)
}

// A node sends no text that other nodes must escape or cut.
func TestSentTextIsPrintable(t *testing.T) {
	b, err := json.Marshal(answer{Refuse: &refusal{RefuseClosed, logtest.Hostile + strings.Repeat("x", 2*maxReason)}})
	var a struct{ Refuse struct{ Code, Reason string } }
	if err := errors.Join(err, json.Unmarshal(b, &a)); err != nil {
		t.Fatal(err)
	}
	checkPrinted(t, "the refusal", a.Refuse.Reason, `\x1b[2J`, "...")
	if len(a.Refuse.Reason) > maxReason || a.Refuse.Code != RefuseClosed {
		t.Errorf("%d bytes, code %q", len(a.Refuse.Reason), a.Refuse.Code)
	}
	g := meet(t, nil)
	g.link.sendBye(logtest.Hostile + strings.Repeat("x", 2*maxReason))
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	g.link.s.mu.Lock()
	defer g.link.s.mu.Unlock()
	if checkPrinted(t, "the bye", g.link.byeSay, "..."); len(g.link.byeSay) > maxReason {
		t.Errorf("%d bytes", len(g.link.byeSay))
	}
}

// Names and labels that other nodes could not print are refused by their own node.
func TestOwnNamesArePrintable(t *testing.T) {
	r, _ := rawRouter(t, Config{Node: 5, Topology: Alone})
	for _, name := range []string{"a\nb", "a\u009b", "\xff", "a\u202e"} {
		_, err := r.Channel(Spec{Name: name}, nil)
		errs := []error{err, r.Barrier(t.Context(), name), openRouter(t, Config{Node: 5}).Start(t.Context(), []string{name})}
		for i, err := range errs {
			if err == nil || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), "printable") {
				t.Errorf("%q: error %d: %v", name, i, err)
			}
		}
	}
	if err := r.Barrier(t.Context(), "größe ✓"); err != nil {
		t.Error(err)
	}
}
