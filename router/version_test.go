package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// versions keeps the versions of one event, and returns no room until the test calls release.
type versions struct {
	mu   sync.Mutex
	got  []uint64
	held []router.Credit
}

func (v *versions) deliver(m *router.Message) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.got = append(v.got, m.Version)
	v.held = append(v.held, m.Credit)
	return nil
}

func (v *versions) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint(v.got)
}

// release returns the room of one message.
func (v *versions) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held[0].Return(1, 1)
	v.held = v.held[1:]
}

// window is the least that a peer's window can be, in messages.
const window = 4

// slow are n nodes, of which all but node 0 listen and hold what comes, with a small window.
func slow(t *testing.T, n int) (j *job, chs []*router.Channel, in []*versions) {
	t.Helper()
	j = newJob(t, n, func(c *router.Config) { c.WindowMessages = window })
	in = make([]*versions, n)
	for id, r := range j.nodes {
		in[id] = &versions{}
		ch, err := r.Channel(router.Spec{Name: "n"}, in[id].deliver)
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(id > 0)
		chs = append(chs, ch)
	}
	j.start()
	return j, chs, in
}

// sendOne sends one message in a goroutine, and returns when that is blocked or has ended.
func sendOne(ctx context.Context, out *router.Channel) <-chan error {
	err := make(chan error, 1) // one result
	go func() {
		_, e := out.Send(ctx, router.Bytes("x"), nil)
		err <- e
	}()
	synctest.Wait()
	return err
}

// TestE2VersionsFollowTheOrderOfTheStream stops a send while it looks for its peers,
// and lets another one go first.
func TestE2VersionsFollowTheOrderOfTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		in := &versions{}
		out, err := j.nodes[0].Channel(router.Spec{Name: "n"}, in.deliver)
		if err != nil {
			t.Fatal(err)
		}
		ch, err := j.nodes[1].Channel(router.Spec{Name: "n"}, in.deliver)
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
		j.start()
		var all sync.WaitGroup
		later := make(chan struct{})
		all.Go(func() {
			if _, err := out.Send(t.Context(), router.Bytes("1"), func(router.Peer) bool { <-later; return true }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := out.Send(t.Context(), router.Bytes("2"), nil); err != nil {
			t.Error(err)
		}
		close(later)
		all.Wait()
		synctest.Wait()
		if got := in.String(); got != "[1 2]" {
			t.Errorf("versions %s", got)
		}
	})
}

// TestE2BlockedSendsGoInTheOrderOfTheirVersions has senders wait for two peers with full
// windows, which give their room back one message at a time, one peer after the other.
func TestE2BlockedSendsGoInTheOrderOfTheirVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sends = 3 * window
		j, chs, in := slow(t, 3)
		defer j.close()
		var ends []<-chan error
		for range sends {
			ends = append(ends, sendOne(t.Context(), chs[0]))
		}
		var want []uint64
		for v := range uint64(sends) {
			want = append(want, v+1)
		}
		for _, id := range []int{2, 1} {
			for range sends {
				in[id].release()
				synctest.Wait()
			}
			if got := in[id].String(); got != fmt.Sprint(want) {
				t.Errorf("node.%d: versions %s", id, got)
			}
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestE3ABlockedSendThatIsCancelledLeavesTheLine cancels the one in the middle: those behind it
// continue, and the peer misses just the message whose send has failed.
func TestE3ABlockedSendThatIsCancelledLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, chs, in := slow(t, 2)
		defer j.close()
		ctx, cancel := context.WithCancelCause(t.Context())
		var ends []<-chan error
		for i := range window + 3 {
			who := t.Context()
			if i == window+1 {
				who = ctx
			}
			ends = append(ends, sendOne(who, chs[0]))
		}
		cancel(errors.New("no patience"))
		if err := <-ends[window+1]; err == nil || !strings.Contains(err.Error(), "node.1, whose window is full: no patience") {
			t.Error(err)
		}
		for range window + 2 {
			in[1].release()
			synctest.Wait()
		}
		if got := in[1].String(); got != "[1 2 3 4 5 7]" {
			t.Errorf("versions %s", got)
		}
		for _, end := range slices.Delete(ends, window+1, window+2) {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestE3EveryBlockedSendEnds: blocked senders end when the room that they wait for cannot come any more.
func TestE3EveryBlockedSendEnds(t *testing.T) {
	nothing := func(err error) bool { return err == nil }
	closed := func(err error) bool { return errors.Is(err, router.ErrClosed) }
	for name, tc := range map[string]struct {
		happens func(j *job, in *router.Channel)
		ends    func(error) bool
	}{
		"the peer is lost": {func(j *job, _ *router.Channel) { _ = j.nodes[1].Abandon() },
			func(err error) bool { return errors.Is(err, router.ErrLost) }},
		"the peer listens no more": {func(_ *job, in *router.Channel) { in.Listen(false) }, nothing},
		"the peer leaves":          {func(j *job, _ *router.Channel) { j.leave(1) }, nothing},
		"the peer ends":            {func(j *job, _ *router.Channel) { _ = j.nodes[1].Close() }, nothing},
		"the node drains":          {func(j *job, _ *router.Channel) { _ = j.nodes[0].Drain(j.t.Context(), false) }, closed},
		"the node ends":            {func(j *job, _ *router.Channel) { _ = j.nodes[0].Close() }, closed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, chs, in := slow(t, 2)
				defer j.close()
				var ends []<-chan error
				for range window + 3 {
					ends = append(ends, sendOne(t.Context(), chs[0]))
				}
				tc.happens(j, chs[1])
				<-time.After(20 * time.Second)
				synctest.Wait()
				for i, end := range ends[window:] {
					select {
					case err := <-end:
						if !tc.ends(err) {
							t.Errorf("send %d: %v", window+i+1, err)
						}
					default:
						t.Errorf("send %d is still blocked", window+i+1)
					}
				}
				if got := in[1].String(); got != "[1 2 3 4]" {
					t.Errorf("versions %s", got)
				}
			})
		})
	}
}

// TestE3ASendWaitsForEveryPeerWithoutRoom has one of two peers give room: the send waits for
// the other one, and the log names that one only.
func TestE3ASendWaitsForEveryPeerWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, chs, in := slow(t, 3)
		defer j.close()
		for range window {
			if err := <-sendOne(t.Context(), chs[0]); err != nil {
				t.Error(err)
			}
		}
		sent := make(chan int, 1) // one result
		go func() {
			n, err := chs[0].Send(t.Context(), router.Bytes("x"), nil)
			if err != nil {
				t.Error(err)
			}
			sent <- n
		}()
		synctest.Wait()
		in[2].release()
		<-time.After(12 * time.Second)
		j.says(1, `msg="still waiting for room" at=0 event=n peer=node.1 `)
		j.says(1, "still waiting for room")
		if len(sent) > 0 {
			t.Error("it does not wait for node.1")
		}
		in[1].release()
		if n := <-sent; n != 2 {
			t.Errorf("%d peers are addressed", n)
		}
	})
}
