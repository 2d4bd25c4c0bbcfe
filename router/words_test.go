package router

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

func TestNamesOfPoliciesAndTopologies(t *testing.T) {
	for d, want := range map[Delivery]string{
		Reliable: "reliable", Latest: "latest", DropOldest: "drop-oldest", DropNewest: "drop-newest", 9: "delivery(9)",
	} {
		if got := d.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for top, want := range map[Topology]string{Mesh: "mesh", Star: "star", Alone: "alone", 9: "topology(9)"} {
		if got := top.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got, err := ParseTopology(want); (err == nil) != (top != 9) || err == nil && got != top {
			t.Errorf("%q: %v, %v", want, got, err)
		}
	}
	if got, err := ParseTopology(""); got != Mesh || err != nil {
		t.Error(got, err)
	}
}

// Each field is taken up to its bound, and refused beyond it.
func TestConfigBounds(t *testing.T) {
	for _, c := range []struct {
		set func(*Config)
		bad string // the text of the error; "" for no error
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Node, c.Expect = maxNode, maxNode+1 }, ""},
		{func(c *Config) { c.Transport = nil }, "Transport is missing"},
		{func(c *Config) { c.Node = -1 }, "Node -1 is not in 0..1048575"},
		{func(c *Config) { c.Node = maxNode + 1 }, "Node 1048576 is not in 0..1048575"},
		{func(c *Config) { c.Expect = maxNode + 2 }, "Expect 1048577 is not in 0..1048576"},
		{func(c *Config) { c.Expect = -1 }, "Expect -1 is not in"},
		{func(c *Config) { c.WindowMessages, c.WindowBytes = 4, inlineBytes }, ""},
		{func(c *Config) { c.WindowMessages = 3 }, "a window of 3 messages"},
		{func(c *Config) { c.WindowBytes = inlineBytes - 1 }, "and 32767 bytes is too small"},
		{func(c *Config) { c.ChunkBytes, c.MaxMessageBytes = inlineBytes, inlineBytes }, ""},
		{func(c *Config) { c.ChunkBytes = inlineBytes - 1 }, "ChunkBytes 32767 is too small"},
		{func(c *Config) { c.MaxMessageBytes = 256<<10 - 1 }, "MaxMessageBytes 262143 is less than ChunkBytes 262144"},
		{func(c *Config) { c.PeerTimeout = 4 * time.Millisecond }, ""},
		{func(c *Config) { c.PeerTimeout = 3 * time.Millisecond }, "is too often: want at least 1ms"},
		{func(c *Config) { c.Heartbeat, c.LinkTimeout, c.PeerTimeout = time.Second, 2*time.Second, 2*time.Second }, ""},
		{func(c *Config) { c.LinkTimeout = 4*time.Second - 1 }, "want 2 x Heartbeat (2s) <= LinkTimeout"},
		{func(c *Config) { c.LinkTimeout = 9 * time.Second }, "<= LinkTimeout (9s) <= PeerTimeout (8s)"},
	} {
		cfg := Config{Transport: noTransport{}}
		c.set(&cfg)
		if err := cfg.Validate(); (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%v, want %q", err, c.bad)
		}
	}
}

// The defaults that are no times.
func TestDefaults(t *testing.T) {
	var c Config
	c.ensureDefaults()
	got := []int{c.WindowMessages, c.WindowBytes, c.ChunkBytes, c.MaxMessageBytes, c.MaxHandshakes}
	if want := []int{16384, 8 << 20, 256 << 10, 1 << 30, 256}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if c.JoinTimeout != time.Minute || c.HandshakeTimeout != 5*time.Second || c.Logger == nil {
		t.Errorf("%v, %v, %v", c.JoinTimeout, c.HandshakeTimeout, c.Logger)
	}
	if now := uint64(time.Now().UnixNano()); c.Incarnation > now || c.Incarnation < now-uint64(time.Hour) {
		t.Errorf("incarnation %d at %d", c.Incarnation, now)
	}
}

// Without a PeerTimeout the times are 2, 5 and 8 s. With one they follow it, but do not grow.
func TestDefaultTimes(t *testing.T) {
	for peer, want := range map[time.Duration][3]time.Duration{
		0: {2 * time.Second, 5 * time.Second, 8 * time.Second}, time.Hour: {2 * time.Second, 5 * time.Second, time.Hour},
		800 * time.Millisecond: {200 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond},
	} {
		c := Config{PeerTimeout: peer}
		c.ensureDefaults()
		if got := [3]time.Duration{c.Heartbeat, c.LinkTimeout, c.PeerTimeout}; got != want {
			t.Errorf("%v: %v, want %v", peer, got, want)
		}
	}
}

func TestEventsThatCannotBeDeclared(t *testing.T) {
	r := openRouter(t, Config{})
	long := strings.Repeat("x", maxName)
	for _, c := range []struct {
		spec Spec
		bad  string
	}{
		{Spec{}, "want 1 to 255 bytes"},
		{Spec{Name: long + "x"}, "want 1 to 255 bytes"},
		{Spec{Name: long}, ""},
		{Spec{Name: "a", Delivery: DropNewest}, ""},
		{Spec{Name: "b", Delivery: DropNewest + 1}, "unknown delivery policy 4"},
		{Spec{Name: "b", Queue: -1}, "a queue of -1 messages"},
		{Spec{Name: "a"}, `event "a" is declared twice`},
	} {
		if _, err := r.Channel(c.spec, nil); (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%v, want %q", err, c.bad)
		}
	}
	if n := r.channels[0].spec.Queue; n != 1024 {
		t.Errorf("a queue of %d messages", n)
	}
	for i := len(r.channels); i < maxChannels; i++ {
		if _, err := r.Channel(Spec{Name: fmt.Sprint("n", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Channel(Spec{Name: "more"}, nil); err == nil || !strings.Contains(err.Error(), "a node can declare 16384 events") {
		t.Error(err)
	}
}

// Adding counts to themselves doubles each of them.
func TestEveryCountIsAdded(t *testing.T) {
	fill := func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case v.Type().Field(i).Name == "Peer":
			case f.CanInt():
				f.SetInt(int64(i) + 1)
			case f.CanUint():
				f.SetUint(uint64(i) + 1)
			}
		}
	}
	var once, twice StreamStats
	fill(reflect.ValueOf(&once).Elem())
	twice.Add(once)
	twice.Add(once)
	for i, v := 0, reflect.ValueOf(twice); i < v.NumField(); i++ {
		name, f := v.Type().Field(i).Name, v.Field(i)
		if f.CanInt() && name != "Peer" && f.Int() != 2*int64(i)+2 || f.CanUint() && f.Uint() != 2*uint64(i)+2 {
			t.Errorf("%s is %v", name, f)
		}
	}
	if got := (&StreamStats{Replaced: 1, Oldest: 10, Newest: 100, Abandoned: 1000, Lost: 5}).Dropped(); got != 1111 {
		t.Errorf("%d dropped", got)
	}
	p := PeerStats{Node: 1, State: LinkLost, Reconnects: 1, Joins: 2, WireOut: 3, WireIn: 4, RTT: 7}
	p.add(PeerStats{Node: 1, State: LinkUp, Reconnects: 10, Joins: 20, WireOut: 30, WireIn: 40, RTT: 70, LogBytes: 9})
	if want := (PeerStats{Node: 1, State: LinkUp, Reconnects: 11, Joins: 22, WireOut: 33, WireIn: 44, RTT: 70, LogBytes: 9}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}

// Refusals are counted by reason, and the first one for each is logged. A client that closes the connection is not
// logged.
func TestRefusalsByReason(t *testing.T) {
	var log logtest.Buffer
	r := openRouter(t, Config{})
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
	reasons := map[string]error{
		"token": &RefusedError{RefuseToken, "wrong token", "a"}, "crowd": errCrowd, "tls": errSpeaksTLS,
		"garbage": fmt.Errorf("%w: x", errBadFrame),
		"silence": fmt.Errorf("no hello: %w", os.ErrDeadlineExceeded), "hung up": net.ErrClosed,
	}
	for _, err := range reasons {
		r.refused(from, err)
		r.refused(from, err)
	}
	r.refused(from, errors.New("remote error: tls: bad certificate"))
	for reason := range reasons {
		want, logged := 2, 1
		if reason == "tls" {
			want = 3
		}
		if reason == "hung up" {
			logged = 0
		}
		if got := r.Refused()[reason]; got != want {
			t.Errorf("%s: %d, want %d", reason, got, want)
		}
		if got := strings.Count(log.String(), `"refused a connection" from=10.0.0.1:5 reason=`+reason); got != logged {
			t.Errorf("%s: logged %d times, want %d:\n%s", reason, got, logged, log.String())
		}
	}
	if strings.Contains(log.String(), `reason="hung up"`) {
		t.Error("hung up is logged")
	}
}

// Two sides continue with one session if both have it, or if it is empty on either side.
func TestSessionsThatGoOn(t *testing.T) {
	r := openRouter(t, Config{})
	held := func(received int, acked bool) *session {
		s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
		s.control(frameReady, 0, 0, nil)
		s.received.Store(uint64(received))
		if acked {
			s.log.ack(1, false)
		}
		return s
	}
	for _, c := range []struct {
		s    *session
		p    proof
		want bool
	}{
		{nil, proof{}, true},
		{nil, proof{Known: true}, true},
		{nil, proof{Known: true, Got: 1}, false},
		{held(3, true), proof{Known: true, Got: 1}, true},
		{held(0, false), proof{}, true},
		{held(0, false), proof{Got: 1}, false},
		{held(1, false), proof{}, false},
		{held(0, true), proof{}, false},
	} {
		if got := remember(c.s, c.p); got != c.want {
			t.Errorf("%+v: %v", c.p, got)
		}
	}
}

// Of two nodes that have lost each other, the one with the higher id ends.
func TestWhichOfTwoNodesEnds(t *testing.T) {
	lost, stale := &refusal{Code: RefuseLost}, &refusal{Code: RefuseStale}
	r := openRouter(t, Config{Node: 5})
	for _, c := range []struct {
		other        int
		mine, theirs *refusal
		want         bool
	}{
		{4, lost, lost, true}, {6, lost, lost, false}, {4, nil, lost, false}, {4, stale, lost, false}, {4, lost, stale, false},
	} {
		if got := r.makesWay(c.other, c.mine, c.theirs); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
