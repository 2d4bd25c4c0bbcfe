package natsbus

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/logtest"
)

func TestHeadSurvivesTheWire(t *testing.T) {
	want := head{kindData, 1<<63 + 5, 77}
	got, body, err := parse(append(appendHead(nil, want), "body"...))
	if err != nil || got != want || string(body) != "body" {
		t.Errorf("%+v %q %v", got, body, err)
	}
	window, name, err := parseHello(appendHello(nil, minWindow, strings.Repeat("n", 300)))
	if err != nil || window != minWindow || len(name) != nameBytes {
		t.Errorf("%d %q %v", window, name, err)
	}
	for what, b := range map[string][]byte{
		"another version": append([]byte{9}, appendHello(nil, minWindow, "")[1:]...),
		"no window":       appendHello(nil, 0, ""),
		"short":           {1, 2},
		"long":            make([]byte, 1000),
	} {
		if _, _, err := parseHello(b); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestTokensOfJobsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, job := range []string{"a", "a.b", "a~2eb", "a_b", "a-b", "a b", "a*", "a>", "ä"} {
		got := token(job)
		if strings.ContainsAny(got, ".*> ") || seen[got] != "" {
			t.Errorf("%q gives %q, as %q does", job, got, seen[got])
		}
		seen[got] = job
	}
}

func TestWindowsOfAllPeersStayBelowTheServersLimit(t *testing.T) {
	for _, n := range []int{2, 24, 64, 180} {
		c, err := New(Config{URL: "nats://h:1", Job: "j", Nodes: n})
		if err != nil {
			t.Fatal(err)
		}
		if all := c.window() * (n - 1); all > 64<<20 {
			t.Errorf("%d nodes: %d bytes", n, all)
		}
	}
}

// FuzzTake feeds a connection with messages. It must not take more than its window.
func FuzzTake(f *testing.F) {
	f.Add(appendHead(nil, head{kindFin, 1, 0}))
	f.Add(append(appendHead(nil, head{kindData, 1, 0}), "body"...))
	f.Add(appendHello(appendHead(nil, head{kind: kindDial}), minWindow, "name"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, err := parse(b)
		if err != nil {
			return
		}
		if again := append(appendHead(nil, h), body...); !bytes.Equal(again, b) {
			t.Errorf("%x, then %x", b, again)
		}
		_, _, _ = parseHello(body)
		k := &conn{grant: minWindow, next: h.number, window: minWindow, sent: 1000}
		k.readable.L, k.writable.L = &k.mu, &k.mu
		for range 3 {
			if k.take(h, body) != nil {
				break
			}
		}
		if k.acked > k.sent || k.came > uint64(minWindow) && k.err == nil && len(k.in) > minWindow/costBytes {
			t.Errorf("acked %d of %d, %d messages wait", k.acked, k.sent, len(k.in))
		}
	})
}

func TestNamesOfDiallersArePrintable(t *testing.T) {
	_, name, err := parseHello(appendHello(nil, minWindow, logtest.Hostile))
	if err != nil || logtest.Faults(name) != "" || len(name) > nameBytes {
		t.Errorf("%d bytes, %s, %v", len(name), logtest.Faults(name), err)
	}
}
