package faultlab_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/faultlab"
)

var (
	a1 = faultlab.Peer{Node: 0, Incarnation: 1}
	b1 = faultlab.Peer{Node: 1, Incarnation: 1}
	b2 = faultlab.Peer{Node: 1, Incarnation: 2}
)

var forged = faultlab.Rules{Exact: true, SmallBytes: 100, Events: map[string]faultlab.Policy{
	"r": faultlab.Reliable, "q": faultlab.Reliable, "l": faultlab.Latest, "o": faultlab.DropOldest, "n": faultlab.DropNewest,
}}

// story returns a job of two nodes without a fault: node.0 emits three messages of each
// event, and node.1 receives them.
func story() []faultlab.Record {
	var out []faultlab.Record
	add := func(r faultlab.Record) {
		r.At = int64(len(out)) * 10
		out = append(out, r)
	}
	for _, p := range []faultlab.Peer{a1, b1} {
		add(faultlab.Record{Kind: faultlab.Begin, Who: p, Founder: true})
		add(faultlab.Record{Kind: faultlab.Ready, Who: p})
	}
	order := uint64(0)
	for n := uint64(1); n <= 3; n++ {
		for _, e := range []string{"r", "q", "l", "o", "n"} {
			order++
			m := faultlab.Record{Kind: faultlab.Emit, Who: a1, Event: e, Number: n, Order: order, Bytes: 8, Sum: uint32(order)}
			add(m)
			m.Kind, m.Exact = faultlab.Sent, []faultlab.Peer{b1}
			add(m)
			m.Kind, m.Who, m.From, m.Exact = faultlab.Hear, b1, a1, nil
			add(m)
		}
		for _, p := range []faultlab.Peer{a1, b1} {
			add(faultlab.Record{Kind: faultlab.BarrierIn, Who: p, Event: "b", Number: n})
		}
		for _, p := range []faultlab.Peer{a1, b1} {
			add(faultlab.Record{Kind: faultlab.BarrierOut, Who: p, Event: "b", Number: n})
		}
	}
	for _, p := range []faultlab.Peer{a1, b1} {
		add(faultlab.Record{Kind: faultlab.Finishing, Who: p})
	}
	for _, e := range []string{"r", "q", "l", "o", "n"} {
		add(faultlab.Record{Kind: faultlab.Counted, Who: a1, Event: e, Stats: faultlab.Stats{Consumed: 3}})
	}
	for _, p := range []faultlab.Peer{a1, b1} {
		add(faultlab.Record{Kind: faultlab.End, Who: p, Out: faultlab.Success})
	}
	return out
}

func TestAJobWithoutFaultsIsClean(t *testing.T) {
	report, err := faultlab.Check(forged, story())
	if err != nil {
		t.Fatal(err)
	}
	if report.Emitted != 15 || report.Delivered != 15 || report.Owed != 6 || report.Nodes != 2 || report.Reported != 0 {
		t.Errorf("%+v", report)
	}
}

// where finds the first record of the kind, event and number.
func where(records []faultlab.Record, kind faultlab.Kind, event string, number uint64) int {
	return slices.IndexFunc(records, func(r faultlab.Record) bool { return r.Kind == kind && r.Event == event && r.Number == number })
}

func without(records []faultlab.Record, drop func(faultlab.Record) bool) []faultlab.Record {
	return slices.DeleteFunc(records, drop)
}

func heard(event string, numbers ...uint64) func(faultlab.Record) bool {
	return func(r faultlab.Record) bool {
		return r.Kind == faultlab.Hear && r.Event == event && slices.Contains(numbers, r.Number)
	}
}

func at(r faultlab.Record, ns int64) faultlab.Record {
	r.At = ns
	return r
}

// TestEachViolationIsFound forges one record after another.
func TestEachViolationIsFound(t *testing.T) {
	grave := faultlab.Record{Kind: faultlab.Fault, Event: "cut", Nodes: []int{1}, Grave: true}
	leave := faultlab.Record{Kind: faultlab.Fault, Event: faultlab.LeaveFault, Nodes: []int{1}}
	leaves := func(r []faultlab.Record) []faultlab.Record {
		r[len(r)-1].Out = faultlab.Preempted
		return r
	}
	newcomer := func(r []faultlab.Record, at int64) []faultlab.Record { // instead of node.1, with which it was never connected
		r = without(r, func(r faultlab.Record) bool { return r.Kind == faultlab.Hear || r.Who == b1 })
		r = without(r, func(r faultlab.Record) bool {
			return r.Kind == faultlab.BarrierIn || r.Kind == faultlab.BarrierOut || r.Event != "" && r.Event != "r"
		})
		add := func(x faultlab.Record) {
			i := slices.IndexFunc(r, func(o faultlab.Record) bool { return o.At > x.At })
			r = slices.Insert(r, max(i, 0), x)
		}
		add(faultlab.Record{Kind: faultlab.Begin, Who: b2, At: at})
		add(faultlab.Record{Kind: faultlab.Ready, Who: b2, At: at})
		return append(r, faultlab.Record{Kind: faultlab.End, Who: b2, At: r[len(r)-1].At + 1, Out: faultlab.Success})
	}
	for _, c := range []struct {
		name  string
		forge func(r []faultlab.Record) []faultlab.Record
		task  bool   // judged as records of tasks
		want  string // "": it is no violation
	}{
		{"a delivery twice", func(r []faultlab.Record) []faultlab.Record {
			i := where(r, faultlab.Hear, "r", 2)
			return slices.Insert(r, i, r[i])
		}, false, "node.1/1 heard r/0 number 2 of node.0/1 twice"},
		{"a delivery twice, the second after another", func(r []faultlab.Record) []faultlab.Record {
			return slices.Insert(r, where(r, faultlab.Hear, "l", 3)+1, r[where(r, faultlab.Hear, "l", 1)])
		}, false, "node.1/1 heard l/0 number 1 of node.0/1 after number 3"},
		{"two of one event in another order", func(r []faultlab.Record) []faultlab.Record {
			i, j := where(r, faultlab.Hear, "n", 1), where(r, faultlab.Hear, "n", 2)
			r[i], r[j] = r[j], r[i]
			return r
		}, false, "number 1 of node.0/1 after number 2"},
		{"two of two events in another order", func(r []faultlab.Record) []faultlab.Record {
			i, j := where(r, faultlab.Hear, "r", 2), where(r, faultlab.Hear, "q", 2)
			r[i], r[j] = r[j], r[i]
			return r
		}, false, "node.1/1 heard emit 6 of node.0/1, of event r, after emit 7"},
		{"a gap", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("r", 2)) }, false,
			"never heard r/0 number 2 of node.0/1, and yet number 3: it was lost in silence"},
		{"a gap at the start", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("r", 1)) }, true,
			"never heard r/0 number 1"},
		{"no end", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("r", 3)) }, false,
			"never heard the last 1 reliable messages of node.0/1, which reported 0"},
		{"no end, of a task", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("r", 3)) }, true,
			"never heard the last 1 reliable"},
		{"nothing at all", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("q", 1, 2, 3)) }, false,
			"never heard the last 3 reliable"},
		{"fewer reported than lost", func(r []faultlab.Record) []faultlab.Record {
			return append(without(r, heard("r", 2, 3)), grave, faultlab.Record{Kind: faultlab.Lost, At: 1e6, Who: a1, Peer: b1, Count: 1})
		}, false, "never heard the last 2 reliable messages of node.0/1, which reported 1"},
		{"as many reported as lost", func(r []faultlab.Record) []faultlab.Record {
			return append(without(r, heard("r", 2, 3)), grave, faultlab.Record{Kind: faultlab.Lost, At: 1e6, Who: a1, Peer: b1, Count: 2})
		}, false, ""},
		{"lost without a fault", func(r []faultlab.Record) []faultlab.Record {
			return append(r, faultlab.Record{Kind: faultlab.Lost, At: 1e6, Who: a1, Peer: b1, Count: 1, Err: "silent"})
		}, false, "node.0/1 reports 1 messages lost to node.1/1, and neither had a fault that is grave enough: silent"},
		{"an emit that failed for the node", func(r []faultlab.Record) []faultlab.Record {
			i := where(r, faultlab.Sent, "r", 2)
			r[i].Err, r[i].Failed = "lost", []int{1}
			return without(r, heard("r", 2))
		}, true, ""},
		{"an emit that failed for another", func(r []faultlab.Record) []faultlab.Record {
			i := where(r, faultlab.Sent, "r", 2)
			r[i].Err, r[i].Failed = "lost", []int{2}
			return without(r, heard("r", 2))
		}, true, "never heard r/0 number 2"},
		{"other bytes", func(r []faultlab.Record) []faultlab.Record {
			r[where(r, faultlab.Hear, "o", 2)].Sum++
			return r
		}, false, "o/0 number 2 of node.0/1 damaged"},
		{"a message that was not emitted", func(r []faultlab.Record) []faultlab.Record {
			i := where(r, faultlab.Hear, "q", 3)
			fake := r[i]
			fake.Number = 9
			return slices.Insert(r, i+1, fake)
		}, false, "q/0 number 9 of node.0/1, which was never emitted"},
		{"a sender that emitted nothing", func(r []faultlab.Record) []faultlab.Record {
			fake := r[where(r, faultlab.Hear, "q", 3)]
			fake.From = b2
			return append(r, fake)
		}, false, "which emitted none"},
		{"a message for another", func(r []faultlab.Record) []faultlab.Record {
			r[where(r, faultlab.Sent, "r", 2)].Exact = nil
			return r
		}, false, "number 2 of node.0/1, which was not for it"},
		{"a task's message for another", func(r []faultlab.Record) []faultlab.Record {
			r[where(r, faultlab.Emit, "r", 2)].To = []int{2}
			return r
		}, true, "number 2 of node.0/1, which was not for it"},
		{"a message to itself", func(r []faultlab.Record) []faultlab.Record {
			fake := r[where(r, faultlab.Hear, "r", 3)]
			fake.Who = a1
			return append(r, fake)
		}, false, "node.0/1 heard itself"},
		{"not the newest value", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("l", 3)) }, false,
			"heard number 2 of l/0 of node.0/1 last, and not the newest, number 3"},
		{"values skipped", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("l", 1, 2)) }, false, ""},
		{"not the newest kept", func(r []faultlab.Record) []faultlab.Record { return without(r, heard("o", 3)) }, false,
			"not the newest, number 3"},
		{"drops not counted", func(r []faultlab.Record) []faultlab.Record {
			r[where(r, faultlab.Counted, "n", 0)].Stats = faultlab.Stats{Consumed: 1, Dropped: 1}
			return without(r, heard("n", 2, 3))
		}, false, "node.0/1 n: 3 messages were addressed, and 2 are accounted for"},
		{"drops counted", func(r []faultlab.Record) []faultlab.Record {
			r[where(r, faultlab.Counted, "n", 0)].Stats = faultlab.Stats{Consumed: 1, Dropped: 2}
			return without(r, heard("n", 2, 3))
		}, false, ""},
		{"out of a barrier too early", func(r []faultlab.Record) []faultlab.Record {
			i := where(r, faultlab.BarrierOut, "b", 2)
			out := r[i]
			return slices.Insert(slices.Delete(r, i, i+1), where(r, faultlab.BarrierIn, "b", 2)+1, out)
		}, false, `node.0/1 leaves round 2 of barrier "b" before node.1 has come`},
		{"no end of a node", func(r []faultlab.Record) []faultlab.Record { return r[:len(r)-1] }, false, "node.1/1 never ended"},
		{"two ends of a node", func(r []faultlab.Record) []faultlab.Record { return append(r, r[len(r)-1]) }, false, "node.1/1 ends twice"},
		{"a failure without a cause", func(r []faultlab.Record) []faultlab.Record {
			r[len(r)-1].Out, r[len(r)-1].Err = faultlab.Failure, "oh"
			return r
		}, false, "node.1/1 failed, and nothing that was done explains it: oh"},
		{"a failure that blames a node in order", func(r []faultlab.Record) []faultlab.Record {
			r[len(r)-1].Out, r[len(r)-1].Err = faultlab.Failure, "node 0 lost"
			return r
		}, false, "node.1/1 failed, and nothing"},
		{"a failure that blames a node which was cut", func(r []faultlab.Record) []faultlab.Record {
			r[len(r)-2].Out, r[len(r)-2].Err = faultlab.Failure, "node 1 lost"
			return append(r, grave)
		}, false, ""},
		{"killed without a fault", func(r []faultlab.Record) []faultlab.Record {
			r[len(r)-1].Out = faultlab.Killed
			return r
		}, false, "node.1/1 was killed, and no fault was meant for it"},
		{"preempted without a cause", func(r []faultlab.Record) []faultlab.Record {
			r[len(r)-1].Out = faultlab.Preempted
			return r
		}, false, "node.1/1 was preempted without a cause"},
		{"a node that was told to leave", func(r []faultlab.Record) []faultlab.Record { return append(leaves(r), leave) }, true, ""},
		{"a node that left before it had all", func(r []faultlab.Record) []faultlab.Record {
			return append(without(leaves(r), heard("r", 3)), leave)
		}, true, "never heard the last 1 reliable messages of node.0/1"},
		{"an emit while a node left", func(r []faultlab.Record) []faultlab.Record {
			r = leaves(r)
			r[where(r, faultlab.Finishing, "", 0)+1].At = r[where(r, faultlab.Sent, "r", 3)].At
			return append(without(r, heard("r", 3)), leave)
		}, true, ""},
		{"a node that left, and whose last emits did not arrive", func(r []faultlab.Record) []faultlab.Record {
			r[len(r)-2].Out = faultlab.Preempted
			return append(without(r, heard("q", 2, 3)), faultlab.Record{Kind: faultlab.Fault, Event: faultlab.LeaveFault, Nodes: []int{0}})
		}, true, "never heard the last 2 reliable messages of node.0/1"},
		{"a newcomer that is sent nothing", func(r []faultlab.Record) []faultlab.Record {
			return newcomer(r, r[where(r, faultlab.Emit, "r", 2)].At-1)
		}, true, "node.1/2 never heard the last 2 reliable messages of node.0/1"},
		{"a newcomer that comes when all has been sent", func(r []faultlab.Record) []faultlab.Record {
			return newcomer(r, r[where(r, faultlab.Finishing, "", 0)].At-1)
		}, true, ""},
		{"ready without the newest value", func(r []faultlab.Record) []faultlab.Record {
			end := r[where(r, faultlab.Finishing, "", 0)].At
			return slices.Insert(r, where(r, faultlab.Finishing, "", 0),
				at(faultlab.Record{Kind: faultlab.Begin, Who: b2}, end-2), at(faultlab.Record{Kind: faultlab.Ready, Who: b2}, end-1))
		}, true, "node.1/2 was ready with number 0 of l/0 of node.0/1, when number 3 had been emitted before it began"},
		{"an emit that is not recorded", func(r []faultlab.Record) []faultlab.Record {
			return without(r, func(r faultlab.Record) bool { return r.Number == 2 && r.Event == "r" })
		}, false, "the records are broken"},
	} {
		rules := forged
		rules.Exact = !c.task
		_, err := faultlab.Check(rules, c.forge(story()))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// TestOnlyTheFirstViolationsAreReported forges many records.
func TestOnlyTheFirstViolationsAreReported(t *testing.T) {
	r := story()
	for i := range r {
		if r[i].Kind == faultlab.Hear {
			r[i].Sum++
		}
	}
	if _, err := faultlab.Check(forged, r); err == nil || strings.Count(err.Error(), "\n") != 8 || !strings.Contains(err.Error(),
		"\nand 7 more") {
		t.Error(err)
	}
}

// TestRecordsOfAKilledProcess writes the records of two processes, the last line of
// one of which is cut off, and reads them in order of time.
func TestRecordsOfAKilledProcess(t *testing.T) {
	paths := []string{filepath.Join(t.TempDir(), "0"), filepath.Join(t.TempDir(), "1")}
	for i, path := range paths {
		w, err := faultlab.NewWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 3 {
			if err := w.Write(faultlab.Record{Kind: faultlab.Hear, At: int64(10*k + i), Number: uint64(k)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths[1], b[:len(b)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	records, err := faultlab.ReadFiles(paths)
	if err != nil {
		t.Fatal(err)
	}
	var times []int64
	for _, r := range records {
		times = append(times, r.At)
	}
	if want := []int64{0, 1, 10, 11, 20}; !slices.Equal(times, want) {
		t.Errorf("%v, want %v", times, want)
	}
}

// A hostile node is not checked, and excuses only the violations that concern it.
func TestAHostileNodeIsNotJudged(t *testing.T) {
	late := int64(1) << 40
	for _, c := range []struct {
		name  string
		grave bool
		err   string // with which node.1 fails; empty: it does not
		more  faultlab.Record
		want  string
	}{
		{name: "what it says is heard", more: faultlab.Record{Kind: faultlab.Hear, Who: a1, From: faultlab.Peer{Node: 7}, Event: "r", Number: 9}},
		{name: "what one above it says is heard", more: faultlab.Record{Kind: faultlab.Hear, Who: a1, From: faultlab.Peer{Node: 8},
			Event: "r", Number: 9}},
		{
			name: "what one below it says is heard", more: faultlab.Record{Kind: faultlab.Hear, Who: a1, From: faultlab.Peer{Node: 6},
				Event: "r", Number: 9},
			want: "heard 1 messages of node.6/0",
		},
		{name: "messages are lost to it", more: faultlab.Record{Kind: faultlab.Lost, Who: a1, Peer: faultlab.Peer{Node: 7}, Count: 5}},
		{
			name: "messages are lost to another", more: faultlab.Record{Kind: faultlab.Lost, Who: a1, Peer: faultlab.Peer{Node: 1}, Count: 5},
			want: "reports 5 messages lost to node.1/0",
		},
		{name: "a node ends because of it", grave: true, err: "node.7: lost: silent"},
		{name: "a node ends because of it, in a job that recovers", err: "node.7: lost: silent",
			want: "node.1/1 failed, and nothing that was done explains it"},
		{name: "a node ends because of another", grave: true, err: "node.0: lost: silent",
			want: "node.1/1 failed, and nothing that was done explains it"},
	} {
		records := story()
		if c.err != "" {
			records[len(records)-1].Out, records[len(records)-1].Err = faultlab.Failure, c.err
		}
		records = append(records, faultlab.Record{Kind: faultlab.Hostile, Who: faultlab.Peer{Node: 7}, Grave: c.grave, At: late})
		if c.more.Kind != "" {
			records = append(records, at(c.more, late))
		}
		rules := forged
		rules.Exact = false
		switch _, err := faultlab.Check(rules, records); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: want %q in: %v", c.name, c.want, err)
		}
	}
}
