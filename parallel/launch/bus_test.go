package launch

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// busPlan is the plan of a job of two launchers, of which the first runs the server.
func busPlan(t *testing.T, rank int) placement.Plan {
	t.Helper()
	plan, err := placement.New(placement.Flags{MQType: "nats", Ports: "7"},
		placement.Site{Rank: rank, Launchers: make([]placement.Launcher, 2)})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestNodesConnectToTheServerOfTheFirstLauncher(t *testing.T) {
	for rank := range 2 {
		l, err := New(Config{Plan: busPlan(t, rank), Command: []string{os.Args[0]}})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		e := l.env(l.nodes[0], 0)
		if e.Bus != "nats://127.0.0.1:7" || e.BusAuth != control.BusAuthJob || strings.Contains(strings.Join(e.Encode(), " "), "BUS_LISTEN") {
			t.Errorf("launcher %d: %q", rank, e.Encode())
		}
	}
}

func TestServerWithoutAPortIsAFault(t *testing.T) {
	plan, err := placement.New(placement.Flags{MQType: "nats"}, placement.Site{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Plan: plan, Command: []string{os.Args[0]}}
	if _, err := New(cfg); err == nil || err.Error() != "the plan's NATS server has no port: start it, and bind the plan to its port" {
		t.Error(err)
	}
	cfg.Plan = plan.BindBus(7)
	if _, err := New(cfg); err != nil {
		t.Error(err)
	}
}

func TestResultHasTheTimeOfTheKill(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	if r := s.c.result(); !r.Deadline.IsZero() {
		t.Errorf("deadline %v of a job that runs", r.Deadline)
	}
	s.signal(syscall.SIGTERM, "terminated0 terminated1")
	if r, want := s.c.result(), s.now.Add(s.c.grace); !r.Deadline.Equal(want) {
		t.Errorf("deadline %v, want %v", r.Deadline, want)
	}
	s.wait(10*time.Second, "kill0 kill1")
	if r := s.c.result(); !r.Deadline.IsZero() {
		t.Errorf("deadline %v of a job that was killed", r.Deadline)
	}
}
