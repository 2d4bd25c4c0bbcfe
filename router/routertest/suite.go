package routertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
)

// Run runs the suite.
func Run(t *testing.T, s Setup) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Setup)
	}{
		{"R1FirstEventAfterReadyReachesAll", testFirst},
		{"E2OrderPerSender", testOrder},
		{"E2OrderOverAllEvents", testOrderOverEvents},
		{"E2VersionsRiseForConcurrentSends", testVersions},
		{"E5EachListeningNodeOnce", testOnce},
		{"E6OnlyWhomItNames", testMatch},
		{"E9EmitAndCloseLosesNothing", testDrain},
		{"E9LeaveLosesNothing", testLeave},
		{"E10SlowListenerBlocksItsSenderOnly", testBackPressure},
		{"E11LatestNeverGoesBack", testLatest},
		{"E11LatestReachesLateJoiner", testLateJoiner},
		{"DropPoliciesCount", testDrop},
		{"E12PayloadsOfAllSizes", testSizes},
		{"E12SmallPassesLarge", testInterleave},
		{"E12AllSizesAtOnceIntact", testMixed},
		{"E1OtherShapeIsRefused", testFingerprint},
		{"R2JoinLeaveRestart", testMembership},
		{"R4CutAndHeal", testCut},
		{"R5LostPeerIsNamed", testLost},
		{"R5FarewellIsReceivedByAllNodes", testFarewell},
		{"R6Barrier", testBarrier},
		{"R6BarrierNamesMissingAndDead", testBarrierFaults},
		{"R8JobsDoNotMeet", testJobs},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

func ints(t testing.TB, got []received) []int {
	t.Helper()
	out := make([]int, len(got))
	for i, r := range got {
		if _, err := fmt.Sscan(string(r.payload), &out[i]); err != nil {
			t.Fatalf("payload %q: %v", r.payload, err)
		}
	}
	return out
}

func num(i int) router.Bytes { return router.Bytes(fmt.Sprint(i)) }

func ascending(t testing.TB, got []received, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d messages, want %d", len(got), n)
	}
	for i, v := range ints(t, got) {
		if v != i {
			t.Fatalf("message %d is %d", i, v)
		}
	}
}

func send(l *lab, in *inbox, b router.Buffer) {
	l.t.Helper()
	if _, err := in.ch.Send(l.ctx, b, nil); err != nil {
		l.t.Fatal(err)
	}
}

func testFirst(t *testing.T, s Setup) {
	l := s.lab(t, 4, nil)
	spec := router.Spec{Name: "hello"}
	in := make([]*inbox, len(l.nodes))
	for i, n := range l.nodes {
		in[i] = n.listen(spec, false)
	}
	l.each(l.nodes, func(n *node) error {
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) //nolint:forbidigo // the fault that is tested
		if err := n.Start(l.ctx, nil); err != nil {
			return err
		}
		_, err := in[n.id].ch.Send(l.ctx, num(n.id), nil)
		return err
	})
	for i := range in {
		got := in[i].wait(l.ctx, t, 3)
		seen := map[int]bool{}
		for _, v := range ints(t, got) {
			if v == i || seen[v] {
				t.Errorf("node.%d received node.%d, itself or twice", i, v)
			}
			seen[v] = true
		}
	}
	l.finish()
}

func testOrder(t *testing.T, s Setup) {
	l := s.lab(t, 2, nil)
	spec := router.Spec{Name: "n"}
	out, in := l.nodes[0].declare(spec, false), l.nodes[1].listen(spec, false)
	l.start()
	const each, senders = 500, 8
	var wg sync.WaitGroup
	for k := range senders {
		wg.Go(func() {
			for i := range each {
				send(l, out, num(k*each+i))
			}
		})
	}
	wg.Wait()
	next := map[int]int{}
	for _, v := range ints(t, in.wait(l.ctx, t, each*senders)) {
		if k := v / each; v%each != next[k] {
			t.Fatalf("sender %d: %d after %d", k, v%each, next[k]-1)
		}
		next[v/each]++
	}
	l.finish()
}

func testOrderOverEvents(t *testing.T, s Setup) {
	l := s.lab(t, 2, nil)
	var mu sync.Mutex
	var got []string
	done := make(chan struct{})
	var out []*inbox
	for k := range 3 {
		spec := router.Spec{Name: fmt.Sprint("e", k)}
		out = append(out, l.nodes[0].declare(spec, false))
		ch, err := l.nodes[1].Channel(spec, func(m *router.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, string(m.Payload))
			m.Credit.Return(1, len(m.Payload))
			if len(got) == 900 {
				close(done)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
	}
	l.start()
	for i := range 900 {
		b := num(i)
		if i%7 == 0 { // a whole chunk also keeps its place
			b = append(b, bytes.Repeat([]byte{' '}, 200<<10)...)
		}
		send(l, out[i%3], b)
	}
	<-done
	for i, v := range got {
		if strings.TrimSpace(v) != fmt.Sprint(i) {
			t.Fatalf("message %d is %.20q", i, v)
		}
	}
	l.finish()
}

func testOnce(t *testing.T, s Setup) {
	l := s.lab(t, 4, nil)
	spec := router.Spec{Name: "n"}
	var in []*inbox
	for _, n := range l.nodes {
		in = append(in, n.listen(spec, false))
	}
	deaf := l.nodes[3]
	in[3].ch.Listen(false)
	l.start()
	for i := range 100 {
		if n, err := in[0].ch.Send(l.ctx, num(i), nil); n != 2 || err != nil {
			t.Fatalf("reached %d, %v", n, err)
		}
	}
	ascending(t, in[1].wait(l.ctx, t, 100), 100)
	ascending(t, in[2].wait(l.ctx, t, 100), 100)
	l.finish()
	if in[0].count() != 0 || in[3].count() != 0 {
		t.Errorf("the sender received %d, node.%d, which does not listen, %d", in[0].count(), deaf.id, in[3].count())
	}
}

func testMatch(t *testing.T, s Setup) {
	l := s.lab(t, 3, nil)
	spec := router.Spec{Name: "n"}
	var in []*inbox
	for _, n := range l.nodes {
		in = append(in, n.listen(spec, false))
	}
	l.start()
	n, err := in[0].ch.Send(l.ctx, num(0), func(p router.Peer) bool { return p.Labels[0] == "node.2" })
	if n != 1 || err != nil {
		t.Fatalf("reached %d, %v", n, err)
	}
	ascending(t, in[2].wait(l.ctx, t, 1), 1)
	l.finish()
	if in[1].count() != 0 {
		t.Error("node.1 received a message that was not addressed to it")
	}
}

func testDrain(t *testing.T, s Setup) {
	l := s.lab(t, 2, nil)
	spec := router.Spec{Name: "n"}
	out, in := l.nodes[0].declare(spec, false), l.nodes[1].listen(spec, false)
	l.start()
	for i := range 1000 {
		send(l, out, num(i))
	}
	if err := errors.Join(l.nodes[0].Drain(l.ctx, false), l.nodes[0].Close()); err != nil {
		t.Fatal(err)
	}
	ascending(t, in.wait(l.ctx, t, 1000), 1000)
	if _, err := out.ch.Send(l.ctx, num(0), nil); !errors.Is(err, router.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// testLeave makes a node leave that others are sending to, and that answers, as fast
// as they can.
func testLeave(t *testing.T, s Setup) {
	l := s.lab(t, 3, func(c *router.Config) { c.WindowMessages = 64 })
	ask, answer := router.Spec{Name: "ask"}, router.Spec{Name: "answer"}
	var asks, answers []*inbox
	for _, n := range l.nodes[:2] {
		asks = append(asks, n.declare(ask, false))
		answers = append(answers, n.listen(answer, false))
	}
	leaver := l.nodes[2]
	asked, replies := leaver.listen(ask, false), leaver.declare(answer, false)
	l.start()
	sent := make([]int, 2) // messages that were addressed to the leaver
	var wg sync.WaitGroup
	for i := range asks {
		wg.Go(func() {
			for {
				payload := num(sent[i])
				if sent[i]%50 == 0 {
					payload = append(payload, bytes.Repeat([]byte(" "), 600<<10)...) // in chunks
				}
				n, err := asks[i].ch.Send(l.ctx, payload, nil)
				if err != nil {
					t.Errorf("node.%d: %v", i, err)
				}
				if sent[i] += n; n == 0 {
					return
				}
			}
		})
	}
	asked.wait(l.ctx, t, 200)
	if err := leaver.Leave(l.ctx); err != nil {
		t.Fatal(err)
	}
	had := asked.count()
	wg.Wait()
	if total := sent[0] + sent[1]; total != had {
		t.Errorf("%d messages were addressed to the node that leaves, and it has %d", total, had)
	}
	for i := range had { // it can still answer
		send(l, replies, num(i))
	}
	if err := errors.Join(leaver.Drain(l.ctx, false), leaver.Close(), leaver.Losses()); err != nil {
		t.Error(err)
	}
	l.nodes = l.nodes[:2]
	for i, n := range l.nodes {
		ascending(t, answers[i].wait(l.ctx, t, had), had)
		l.awaitPeers(n, 1-i)
		if err := n.Losses(); err != nil {
			t.Errorf("node.%d: %v", i, err)
		}
	}
	l.each(l.nodes, func(n *node) error { return n.Barrier(l.ctx, "without it") })
	l.finish()
}

func testBackPressure(t *testing.T, s Setup) {
	l := s.lab(t, 3, func(c *router.Config) { c.WindowMessages = 64 })
	slow, fast := router.Spec{Name: "slow"}, router.Spec{Name: "fast"}
	out, other := l.nodes[0].declare(slow, false), l.nodes[0].declare(fast, false)
	in, inFast := l.nodes[1].listen(slow, true), l.nodes[1].listen(fast, false)
	in2 := l.nodes[2].listen(slow, false)
	l.start()
	const n = 1000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			send(l, out, num(i))
		}
	})
	in.wait(l.ctx, t, 64)
	in2.wait(l.ctx, t, 65) // one node's full window does not delay another
	for i := range n {
		send(l, other, num(i))
	}
	ascending(t, inFast.wait(l.ctx, t, n), n)
	if in.count() > 64 {
		t.Errorf("%d messages received through a window of 64", in.count())
	}
	ctx, cancel := context.WithCancelCause(l.ctx)
	cancel(errors.New("no patience"))
	if _, err := out.ch.Send(ctx, num(n), func(p router.Peer) bool { return p.ID == 1 }); err == nil ||
		!strings.Contains(err.Error(), "node.1") || !strings.Contains(err.Error(), "no patience") {
		t.Errorf("send into a full window: %v", err)
	}
	in.release()
	wg.Wait()
	ascending(t, in.wait(l.ctx, t, n), n)
	l.finish()
}

func testLatest(t *testing.T, s Setup) {
	l := s.lab(t, 2, nil)
	spec := router.Spec{Name: "weights", Delivery: router.Latest}
	out, in := l.nodes[0].declare(spec, false), l.nodes[1].listen(spec, true)
	l.start()
	for i := range 1000 {
		send(l, out, num(i))
	}
	first := in.wait(l.ctx, t, 1)
	if len(first) != 1 || first[0].version != 1 {
		t.Fatalf("the first is %+v", first)
	}
	in.release()
	got := in.wait(l.ctx, t, 2)
	if got[1].version != 1000 || string(got[1].payload) != "999" {
		t.Errorf("the second is version %d: %s", got[1].version, got[1].payload)
	}
	if n := Total(l.nodes[0].Router, spec.Name).Replaced; n != 998 {
		t.Errorf("%d versions skipped, want 998", n)
	}
	l.finish()
}

func testLateJoiner(t *testing.T, s Setup) {
	l := s.lab(t, 2, func(c *router.Config) { c.Expect = 0 })
	spec := router.Spec{Name: "weights", Delivery: router.Latest}
	out := l.nodes[0].declare(spec, false)
	l.nodes[1].declare(spec, false)
	l.start()
	big := append([]byte("3"), bytes.Repeat([]byte{' '}, 3<<20)...)
	for i := range 3 {
		send(l, out, num(i))
	}
	send(l, out, router.Bytes(big))
	late := l.node(2, 0)
	l.nodes = append(l.nodes, late)
	in := late.listen(spec, false)
	if err := late.Start(l.ctx, nil); err != nil {
		t.Fatal(err)
	}
	if in.count() != 1 || !bytes.Equal(in.wait(l.ctx, t, 1)[0].payload, big) {
		t.Errorf("the newest value is not there when Start returns: %d messages", in.count())
	}
	l.finish()
}

func testDrop(t *testing.T, s Setup) {
	for _, d := range []router.Delivery{router.DropOldest, router.DropNewest} {
		l := s.lab(t, 2, nil)
		spec := router.Spec{Name: "metrics", Delivery: d, Queue: 10}
		out, in := l.nodes[0].declare(spec, false), l.nodes[1].listen(spec, true)
		l.start()
		for i := range 1000 {
			send(l, out, num(i))
		}
		in.wait(l.ctx, t, 10)
		in.release()
		got := ints(t, in.wait(l.ctx, t, 20))
		last := map[router.Delivery]int{router.DropOldest: 999, router.DropNewest: 19}[d]
		if got[0] != 0 || got[19] != last {
			t.Errorf("%v: first %d, last %d, want 0 and %d", d, got[0], got[19], last)
		}
		l.finish()
		if st := Total(l.nodes[0].Router, spec.Name); st.Dropped() != 980 || st.Sent != 1000 {
			t.Errorf("%v: %+v, want 980 dropped of 1000", d, st)
		}
	}
}

func testSizes(t *testing.T, s Setup) {
	l := s.lab(t, 3, nil)
	spec := router.Spec{Name: "n"}
	out, in := l.nodes[2].declare(spec, false), []*inbox{l.nodes[0].listen(spec, false), l.nodes[1].listen(spec, false)}
	l.start()
	rnd := rand.NewChaCha8([32]byte{1})
	sizes := []int{0, 64, 32 << 10, 32<<10 + 1, 64 << 10, 256 << 10, 256<<10 + 1, 1 << 20, 64 << 20}
	var want [][]byte
	for _, n := range sizes {
		b := make([]byte, n)
		_, _ = rnd.Read(b)
		want = append(want, b)
		send(l, out, router.Bytes(b))
	}
	for _, in := range in {
		for i, got := range in.wait(l.ctx, t, len(sizes)) {
			if !bytes.Equal(got.payload, want[i]) {
				t.Errorf("%d bytes sent, %d or other ones received", sizes[i], len(got.payload))
			}
		}
	}
	l.finish()
}

func testInterleave(t *testing.T, s Setup) {
	l := s.lab(t, 2, nil)
	small, large := router.Spec{Name: "small"}, router.Spec{Name: "large"}
	out, outLarge := l.nodes[0].declare(small, false), l.nodes[0].declare(large, false)
	in, inLarge := l.nodes[1].listen(small, false), l.nodes[1].listen(large, false)
	l.start()
	send(l, outLarge, make(router.Bytes, 64<<20))
	before := 0
	for inLarge.count() == 0 {
		send(l, out, num(before))
		in.wait(l.ctx, t, before+1)
		before++
	}
	if before < 3 {
		t.Errorf("%d small messages passed a transfer of 64 MiB", before)
	}
	l.finish()
}

func testFingerprint(t *testing.T, s Setup) {
	l := s.lab(t, 2, nil)
	l.nodes[0].listen(router.Spec{Name: "n", Fingerprint: 1, Schema: "string"}, false)
	l.nodes[1].listen(router.Spec{Name: "n", Fingerprint: 2, Schema: "[]float32"}, false)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, n := range l.nodes {
		wg.Go(func() { errs[i] = n.Start(l.ctx, nil) })
	}
	wg.Wait()
	both := errors.Join(errs...)
	for _, want := range []string{`event "n"`, "node.0", "node.1", "string", "[]float32"} {
		if both == nil || !strings.Contains(both.Error(), want) {
			t.Fatalf("want %s in: %v", want, both)
		}
	}
}

func testMembership(t *testing.T, s Setup) {
	l := s.lab(t, 3, func(c *router.Config) { c.Expect = 0 })
	spec := router.Spec{Name: "n"}
	var in []*inbox
	for _, n := range l.nodes {
		in = append(in, n.listen(spec, false))
	}
	l.start()
	l.awaitPeers(l.nodes[0], 1, 2)
	// A late one has the address of node.0 only, and receives those of the others.
	join := func(incarnation uint64) (*node, *inbox) {
		edit := l.edit
		l.edit = func(c *router.Config) {
			edit(c)
			c.Incarnation = incarnation
			c.Attach = c.Attach[:1]
		}
		defer func() { l.edit = edit }()
		n := l.node(3, 0)
		in := n.listen(spec, false)
		if err := n.Start(l.ctx, nil); err != nil {
			t.Fatal(err)
		}
		l.awaitPeers(n, 0, 1, 2)
		return n, in
	}
	late, inLate := join(100)
	l.awaitPeers(l.nodes[2], 0, 1, 3)
	send(l, in[2], num(0))
	ascending(t, inLate.wait(l.ctx, t, 1), 1)
	if err := errors.Join(late.Drain(l.ctx, false), late.Close()); err != nil {
		t.Fatal(err)
	}
	l.awaitPeers(l.nodes[2], 0, 1)
	if n, err := in[2].ch.Send(l.ctx, num(1), nil); n != 2 || err != nil {
		t.Errorf("after it left: reached %d, %v", n, err)
	}
	again, inAgain := join(101)
	l.nodes = append(l.nodes, again)
	send(l, in[2], num(0))
	ascending(t, inAgain.wait(l.ctx, t, 1), 1)
	l.finish()
}

// awaitPeers waits until the node has just these peers.
func (l *lab) awaitPeers(n *node, ids ...int) {
	l.t.Helper()
	change := make(chan struct{}, 1)
	n.Watch(func(router.Change) {
		select {
		case change <- struct{}{}:
		default:
		}
	})
	for {
		var have []int
		for _, p := range n.Peers() {
			have = append(have, p.ID)
		}
		if fmt.Sprint(have) == fmt.Sprint(ids) {
			return
		}
		select {
		case <-change:
		case <-l.ctx.Done():
			l.t.Fatalf("node.%d has peers %v, want %v", n.id, have, ids)
		}
	}
}

func testCut(t *testing.T, s Setup) {
	l := s.lab(t, 3, nil)
	spec := router.Spec{Name: "n"}
	var in []*inbox
	for _, n := range l.nodes {
		in = append(in, n.listen(spec, false))
	}
	l.start()
	const each = 3000
	var wg sync.WaitGroup
	for k := range l.nodes {
		wg.Go(func() {
			for i := range each {
				b := num(i)
				if i%100 == 0 {
					b = append(b, bytes.Repeat([]byte{' '}, 600<<10)...)
				}
				send(l, in[k], b)
			}
		})
	}
	for cut := range 5 {
		in[0].wait(l.ctx, t, (cut+1)*each/4)
		l.wire.Cut()
		l.wire.Heal()
	}
	wg.Wait()
	for i := range in {
		next := map[int]int{}
		for j, v := range ints(t, in[i].wait(l.ctx, t, 2*each)) {
			from := in[i].got[j].from
			if v != next[from] {
				t.Fatalf("node.%d received %d of node.%d after %d", i, v, from, next[from]-1)
			}
			next[from]++
		}
	}
	l.finish()
}

func testLost(t *testing.T, s Setup) {
	quick := func(c *router.Config) {
		c.Heartbeat, c.LinkTimeout, c.PeerTimeout = 50*time.Millisecond, 150*time.Millisecond, 300*time.Millisecond
		c.WindowMessages = 16
	}
	l := s.lab(t, 2, quick)
	spec := router.Spec{Name: "n"}
	out, _ := l.nodes[0].declare(spec, false), l.nodes[1].listen(spec, true)
	lost := make(chan router.Change, 8)
	l.nodes[0].Watch(func(c router.Change) { lost <- c })
	l.start()
	l.wire.Cut()
	var err error
	for i := 0; err == nil; i++ {
		_, err = out.ch.Send(l.ctx, num(i), nil)
	}
	var perr *router.PeerError
	if !errors.As(err, &perr) || perr.Node != 1 || !errors.Is(err, router.ErrLost) || perr.Undelivered == 0 {
		t.Errorf("a send to a lost node: %v", err)
	}
	for c := range lost {
		if c.Kind == router.Lost {
			if c.Peer.ID != 1 {
				t.Errorf("node.%d is lost, want node.1", c.Peer.ID)
			}
			break
		}
	}
	if n, err := out.ch.Send(l.ctx, num(0), nil); n != 0 || err != nil {
		t.Errorf("after the loss: reached %d, %v", n, err)
	}
	if err := l.nodes[0].Losses(); !errors.As(err, &perr) {
		t.Errorf("the loss is not reported: %v", err)
	}
}

func testBarrier(t *testing.T, s Setup) {
	for _, n := range []int{2, 5} {
		l := s.lab(t, n, nil)
		l.start()
		var mu sync.Mutex
		entered := make([]int, 100)
		l.each(l.nodes, func(node *node) error {
			for round := range 100 {
				mu.Lock()
				entered[round]++
				mu.Unlock()
				if err := node.Barrier(l.ctx, "b"); err != nil {
					return err
				}
				mu.Lock()
				all := entered[round]
				mu.Unlock()
				if all != n {
					return fmt.Errorf("round %d was left when %d of %d had entered", round, all, n)
				}
			}
			return nil
		})
		l.finish()
	}
}

func testBarrierFaults(t *testing.T, s Setup) {
	l := s.lab(t, 3, nil)
	l.start()
	ctx, cancel := context.WithTimeout(l.ctx, 50*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.nodes[1].Barrier(ctx, "b") })
	if err := l.nodes[0].Barrier(ctx, "b"); err == nil || !strings.Contains(err.Error(), "node.2") {
		t.Errorf("a missing node is not named: %v", err)
	}
	wg.Wait()
	wg.Go(func() { _ = l.nodes[2].Close() })
	if err := l.nodes[0].Barrier(l.ctx, "c"); err == nil || !strings.Contains(err.Error(), "node.2") {
		t.Errorf("a lost node is not named: %v", err)
	}
	wg.Wait()
}

func testJobs(t *testing.T, s Setup) {
	for _, test := range []struct {
		name string
		edit func(*router.Config)
		code string
	}{
		{"job", func(c *router.Config) { c.Job = "other" }, router.RefuseJob},
		{"token", func(c *router.Config) { c.Token = []byte("guess") }, router.RefuseToken},
		{"id", func(c *router.Config) { c.Node = 0 }, router.RefuseID},
	} {
		l := s.lab(t, 1, nil)
		l.start()
		l.edit = test.edit
		other := l.node(1, 2)
		err := other.Start(l.ctx, nil)
		var no *router.RefusedError
		if !errors.As(err, &no) || no.Code != test.code {
			t.Errorf("%s: %v", test.name, err)
		}
		_, _ = other.Close(), l.nodes[0].Close()
	}
}
