package parallel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/trace"
	"github.com/ditask/ditask/task"
)

// recordOf is the path of a record that write has written.
func recordOf(t *testing.T, head trace.Head, limit int64, write func(r *trace.Recorder)) string {
	t.Helper()
	path := trace.Path(t.TempDir(), 1, 0)
	rec, err := trace.Create(path, head, limit)
	if err != nil {
		t.Fatal(err)
	}
	write(rec)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// replayed is a bus that replays a record, and the messages that it has delivered.
type replayed struct {
	task.Bus
	node    *Node
	log     bytes.Buffer
	changes []task.PeerChange
	credits []task.Credit

	mu    sync.Mutex
	given []string
}

// soFar returns the messages that were delivered until now.
func (r *replayed) soFar() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.given)
}

// replayOf replays the record at path to a listener of the event "e".
func replayOf(t *testing.T, path string, fast bool, spec task.ChannelSpec) *replayed {
	t.Helper()
	r := &replayed{}
	r.node = newNode(control.Env{NodeID: 1, Nodes: 2, Replay: path, ReplayFast: fast}, nil, slog.New(slog.NewTextHandler(&r.log, nil)))
	r.Bus = r.node.Bus()
	r.Watch(func(c task.PeerChange) { r.changes = append(r.changes, c) })
	begin := time.Now()
	spec.Name = "e"
	c, err := r.Channel(spec, func(in *task.Inbound) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.given = append(r.given, fmt.Sprintf("%v: %d from %d, %s %s", time.Since(begin), in.Version, in.From, in.Header, in.Payload))
		r.credits = append(r.credits, in.Credit)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Listen(true)
	return r
}

// start starts the replay, which fails the test if it fails.
func (r *replayed) start(t *testing.T) {
	t.Helper()
	if err := r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// Messages are delivered in the order of the record: those before the node was ready by Start,
// the others after it, with the pauses of the record unless it is replayed fast.
func TestReplayKeepsOrderAndPauses(t *testing.T) {
	for _, fast := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) {
				rec.Declare(trace.Event{Name: "e"})
				<-time.After(time.Second)
				rec.Received("e", 2, 5, []byte("h"), []byte("early"))
				rec.Sent("e", 2, 1, 100)
				rec.Ready()
				for i := range 2 {
					<-time.After(2 * time.Second)
					rec.Received("e", 2, uint64(6+i), nil, []byte("late"))
				}
			})
			<-time.After(time.Minute)
			r := replayOf(t, path, fast, task.ChannelSpec{})
			r.start(t)
			if !fast { // the other messages are not due yet
				synctest.Wait()
				if got := r.soFar(); len(got) != 1 {
					t.Errorf("Start has delivered %v", got)
				}
			}
			if err := r.Done(t.Context()); err != nil {
				t.Error(err)
			}
			want := []string{"1s: 5 from 2, h early", "3s: 6 from 2,  late", "5s: 7 from 2,  late"}
			for i := range want {
				if _, rest, _ := strings.Cut(want[i], ":"); fast {
					want[i] = "0s:" + rest
				}
			}
			if !slices.Equal(r.given, want) {
				t.Errorf("fast %v: given %q, want %q", fast, r.given, want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A mailbox accepts as many messages at once as it did when the record was made.
func TestReplayWaitsForRoomInTheMailbox(t *testing.T) {
	for _, c := range []struct {
		spec     task.ChannelSpec
		messages int // number of messages
		bytes    int // of each
		room     int
		used     int // messages that are in the mailbox already
	}{
		{task.ChannelSpec{Delivery: task.DeliverLatest}, 3, 1, 1, 0},
		{task.ChannelSpec{Delivery: task.DeliverDropOldest, Queue: 2}, 4, 1, 2, 0},
		{task.ChannelSpec{Delivery: task.DeliverDropNewest, Queue: 3}, 5, 1, 3, 0},
		{task.ChannelSpec{Delivery: task.DeliverDropNewest}, 3, 1, 1, 0},
		{task.ChannelSpec{}, 6, 0, 4, 16380},
		{task.ChannelSpec{}, 10, 1 << 20, 8, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) {
				rec.Declare(trace.Event{Name: "e"})
				rec.Ready()
				for range c.messages {
					rec.Received("e", 2, 1, nil, make([]byte, c.bytes))
				}
			})
			r := replayOf(t, path, true, c.spec)
			r.node.replay.channels["e"].messages = c.used
			r.start(t)
			for freed := range 2 {
				synctest.Wait()
				if got := len(r.given); got != c.room+freed {
					t.Errorf("%+v: %d given after %d were received, want %d", c.spec, got, freed, c.room+freed)
				}
				r.credits[freed].Return(1, c.bytes)
			}
			if err := r.Done(t.Context()); err != nil {
				t.Error(err)
			}
			_ = r.Close()
		})
	}
}

// A message without room is skipped when its listener has been removed.
func TestReplaySkipsMessagesWithoutAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) {
			rec.Declare(trace.Event{Name: "e"})
			rec.Declare(trace.Event{Name: "unknown"})
			rec.Ready()
			for range 3 {
				rec.Received("e", 2, 1, nil, nil)
			}
			rec.Received("unknown", 2, 1, nil, nil)
		})
		r := replayOf(t, path, true, task.ChannelSpec{Delivery: task.DeliverLatest})
		c := r.node.replay.channels["e"]
		r.start(t)
		synctest.Wait()
		c.Listen(false)
		if err := r.Done(t.Context()); err != nil {
			t.Error(err)
		}
		if len(r.given) != 1 || !strings.Contains(r.log.String(), `given=1 "not listened to"=3 why="the record ends here"`) {
			t.Errorf("given %q\n%s", r.given, r.log.String())
		}
		_ = r.Close()
	})
}

// The peers of a replay are those that the record has.
func TestReplayHasThePeersOfTheRecord(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		path := recordOf(t, trace.Head{Recover: recovers}, 0, func(rec *trace.Recorder) {
			for _, node := range []int{4, 2, 3, 0} {
				rec.Peer(trace.Peer{Node: node, Change: trace.PeerJoined, Incarnation: 7, Labels: []string{"blue"}})
			}
			rec.Peer(trace.Peer{Node: 3, Change: trace.PeerLeft})
			rec.Peer(trace.Peer{Node: 4, Change: trace.PeerLost, Error: "out of reach"})
		})
		r := replayOf(t, path, true, task.ChannelSpec{})
		r.start(t)
		if got := fmt.Sprint(r.Peers()); got != "[{0 7 [blue]} {2 7 [blue]}]" {
			t.Errorf("peers %s", got)
		}
		var events []task.PeerEvent
		for _, c := range r.changes {
			events = append(events, c.Event)
		}
		joined := task.PeerJoined
		if want := []task.PeerEvent{joined, joined, joined, joined, task.PeerLeft, task.PeerLost}; !slices.Equal(events, want) {
			t.Fatalf("changes %+v", r.changes)
		}
		for i, c := range r.changes {
			lost := i == 5
			if c.Fatal != (lost && !recovers) || lost != (c.Err != nil) || lost && c.Err.Error() != "out of reach" {
				t.Errorf("recovers %v: change %d: %+v", recovers, i, c)
			}
		}
		c := r.node.replay.channels["e"]
		for want, match := range map[int]func(task.Peer) bool{
			2: nil,
			1: func(p task.Peer) bool { return p.ID == 2 },
			0: func(task.Peer) bool { return false },
		} {
			if n, err := c.Send(t.Context(), nil, match); n != want || err != nil {
				t.Errorf("a message would go to %d peers, want %d: %v", n, want, err)
			}
		}
		_ = r.Close()
	}
}

// A task that has ended is not notified of the unread rest of the record.
func TestReplayEndsQuietlyWhenItIsClosed(t *testing.T) {
	for name, end := range map[string]func(r *replayed) error{
		"closed":    func(r *replayed) error { return r.Close() },
		"abandoned": func(r *replayed) error { return r.Abandon() },
	} {
		for _, fast := range []bool{true, false} { // it waits for room; it waits until a message is due
			synctest.Test(t, func(t *testing.T) {
				path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) {
					rec.Declare(trace.Event{Name: "e"})
					rec.Ready()
					for range 3 {
						<-time.After(time.Minute)
						rec.Received("e", 2, 1, nil, nil)
					}
				})
				r := replayOf(t, path, fast, task.ChannelSpec{Delivery: task.DeliverLatest})
				r.start(t)
				synctest.Wait()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
				defer cancel()
				if err := r.Done(ctx); err == nil || err.Error() != "enough" {
					t.Errorf("%s: it waits for the record: %v", name, err)
				}
				if err := end(r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if len(r.changes) != 0 || strings.Contains(r.log.String(), "all inputs") {
					t.Errorf("%s: %+v\n%s", name, r.changes, r.log.String())
				}
				if err := r.Done(t.Context()); err != nil {
					t.Errorf("%s: the end of the record: %v", name, err)
				}
			})
		}
	}
}

// The start of a replay ends with its context.
func TestReplayStopsWithTheContextOfItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) {
			<-time.After(time.Minute)
			rec.Ready()
		})
		for _, fast := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			if fast {
				cancel()
			} else {
				time.AfterFunc(time.Second, cancel)
			}
			r := replayOf(t, path, fast, task.ChannelSpec{})
			if err := r.Start(ctx, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("fast %v: %v", fast, err)
			}
			_ = r.Close()
		}
	})
}

// The log has the reason for the end of an incomplete record.
func TestReplayOfARecordThatIsNotWhole(t *testing.T) {
	fill := func(rec *trace.Recorder) {
		rec.Declare(trace.Event{Name: "e"})
		rec.Received("e", 2, 1, nil, make([]byte, 100))
		for range 10 {
			rec.Received("e", 2, 1, nil, make([]byte, 1000))
		}
	}
	limited := recordOf(t, trace.Head{}, 2000, fill)
	whole := recordOf(t, trace.Head{}, 0, fill)
	torn := recordOf(t, trace.Head{}, 0, fill)
	info, err := os.Stat(torn)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(torn, info.Size()-100); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		whole:   "the record ends here",
		limited: "the record had reached its limit: more came that is not in it",
		torn:    "the record ends within a message: the node was killed",
	} {
		r := replayOf(t, path, true, task.ChannelSpec{})
		r.start(t)
		if err := r.Done(t.Context()); err != nil || !strings.Contains(r.log.String(), want) {
			t.Errorf("want %q: %v\n%s", want, err, r.log.String())
		}
		_ = r.Close()
	}
}

// corrupt appends bytes to the record at path that are not a valid record.
func corrupt(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(b, make([]byte, 40)...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A fault of the record fails the start, or later the task.
func TestReplayReportsAFaultOfTheRecord(t *testing.T) {
	path := corrupt(t, recordOf(t, trace.Head{}, 0, func(*trace.Recorder) {}))
	r := replayOf(t, path, true, task.ChannelSpec{})
	if err := r.Start(t.Context(), nil); !errors.Is(err, trace.ErrFormat) || !strings.HasPrefix(err.Error(), "replay "+path+": ") {
		t.Errorf("before it is ready: %v", err)
	}
	_ = r.Close()

	path = corrupt(t, recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) { rec.Ready() }))
	r = replayOf(t, path, true, task.ChannelSpec{})
	r.start(t)
	if err := r.Done(t.Context()); err != nil {
		t.Error(err)
	}
	if len(r.changes) != 1 || r.changes[0].Event != task.BusFailed || !r.changes[0].Fatal || !errors.Is(r.changes[0].Err, trace.ErrFormat) {
		t.Errorf("after it was ready: %+v", r.changes)
	}
	_ = r.Close()
}

// A fault of the task's listener is reported as one of the bus.
func TestReplayReportsAMessageThatCannotBeDelivered(t *testing.T) {
	path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) {
		rec.Declare(trace.Event{Name: "f"})
		rec.Ready()
		rec.Received("f", 2, 1, nil, nil)
		rec.Received("f", 2, 2, nil, nil)
	})
	r := replayOf(t, path, true, task.ChannelSpec{})
	broken, calls := errors.New("not a number"), 0
	c, err := r.Channel(task.ChannelSpec{Name: "f"}, func(*task.Inbound) error { calls++; return broken })
	if err != nil {
		t.Fatal(err)
	}
	c.Listen(true)
	if _, err := r.Channel(task.ChannelSpec{Name: "f"}, nil); err == nil || err.Error() != `event "f" is declared twice` {
		t.Errorf("declared again: %v", err)
	}
	r.start(t)
	_ = r.Done(t.Context())
	if calls != 1 || len(r.changes) != 1 || !errors.Is(r.changes[0].Err, broken) {
		t.Errorf("%d calls: %+v", calls, r.changes)
	}
	_ = r.Close()
}

// A node in a replay has its place in the job that was recorded, and waits for no other node.
func TestNodeOfAReplay(t *testing.T) {
	path := recordOf(t, trace.Head{}, 0, func(rec *trace.Recorder) { rec.Ready() })
	r := replayOf(t, path, true, task.ChannelSpec{})
	if got := fmt.Sprint(r.node.Size(), r.node.Labels(), r.Elastic(), r.Recovers()); got != "2 [distributed node.1 mesh] false false" {
		t.Errorf("size, labels, elastic, recovers: %s", got)
	}
	if err := errors.Join(r.node.Barrier(t.Context(), "b"), r.Drain(t.Context(), true), r.Leave(t.Context())); err != nil {
		t.Error(err)
	}
	c := r.node.replay.channels["e"]
	if !c.Listened() || !c.EverListened() {
		t.Error("its emitted values are not encoded")
	}
	select {
	case <-r.node.ready:
		t.Error("it is ready before its start")
	default:
	}
	if err := r.Start(t.Context(), []string{"distributed", "node.1", "mesh", "learner"}); err != nil {
		t.Fatal(err)
	}
	<-r.node.ready
	if r.node.name() != "node.1 (learner)" {
		t.Errorf("its name is %s", r.node.name())
	}
	_ = r.Close()
}
