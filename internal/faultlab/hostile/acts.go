package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The most that a hostile node sends and receives, so that the machine survives where
// honest nodes have no bound.
const (
	mostReceived = 512 << 20 // bytes in a run
	mostJoins    = 3000      // in a run, of each honest node
	mostPipes    = 400       // connections in a run
)

// bye leaves in order.
func (s *session) bye() error { return s.write(appendFrame(nil, frameBye, 0, 0, []byte("done"))) }

// withoutAck also asks for the newest values again and again, which costs it nothing.
func (a *attack) withoutAck(ctx context.Context) error {
	return a.visit(ctx, manners{credit: true, ready: true, fin: true}, func(s *session, events []event) error {
		var again []byte
		for _, e := range events {
			if e.Delivery == "latest" {
				again = appendFrame(appendFrame(again, frameListen, 0, e.number, nil), frameListen, 1, e.number, nil)
			}
		}
		for ; ctx.Err() == nil && a.received.Load() < mostReceived; rest(ctx, 5*time.Millisecond) {
			if err := s.write(again); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *attack) withoutCredit(ctx context.Context) error {
	return a.visit(ctx, manners{ack: true, ready: true, fin: true}, nothing)
}

func (a *attack) mute(ctx context.Context) error { return a.visit(ctx, mute, nothing) }

func (a *attack) absent(ctx context.Context) error { return a.visit(ctx, polite, nothing) }

func nothing(*session, []event) error { return nil }

// visit joins each node, waits until it is known what the node declares, calls do, and stays
// if that succeeds. A kind that returns does the same again when a connection has ended: so it
// meets nodes that have started again, as an honest node does.
func (a *attack) visit(ctx context.Context, how manners, do func(s *session, events []event) error) error {
	return a.each(func(to int) error {
		for {
			err := a.call(ctx, to, how, do)
			if !a.returns || ctx.Err() != nil {
				return err
			}
			rest(ctx, 50*time.Millisecond)
		}
	})
}

// call is one visit of one node.
func (a *attack) call(ctx context.Context, to int, how manners, do func(s *session, events []event) error) error {
	s, err := a.join(ctx, to, a.hello("join"), how)
	if err != nil {
		return err
	}
	events, err := s.declared(ctx)
	if err != nil {
		return err
	}
	if err := do(s, events); err != nil {
		return errors.Join(err, s.why())
	}
	s.stay(ctx)
	return s.why()
}

// deaf lets the node write until nothing more can be written.
func (a *attack) deaf(ctx context.Context) error {
	return a.visit(ctx, manners{ready: true}, func(s *session, _ []event) error {
		s.hold(func() { <-ctx.Done() })
		return ping(ctx, s)
	})
}

func (a *attack) slow(ctx context.Context) error {
	return a.visit(ctx, polite, func(s *session, _ []event) error {
		s.hold(func() { rest(ctx, 20*time.Millisecond) })
		return ping(ctx, s)
	})
}

// listens makes the node answer again and again.
func (a *attack) listens(ctx context.Context) error {
	return a.visit(ctx, manners{credit: true, ready: true}, func(s *session, events []event) error {
		for ctx.Err() == nil {
			var frames []byte
			for i := range 4000 {
				number := uint16(i / 2 % len(events)) //nolint:gosec // small
				frames = appendFrame(frames, frameListen, byte(i%2), number, nil)
			}
			if err := s.write(frames); err != nil {
				return err
			}
		}
		return nil
	})
}

// barriers tells its rounds before it says that it is ready, which is when a newcomer takes
// them over.
func (a *attack) barriers(ctx context.Context) error {
	return a.visit(ctx, mute, func(s *session, _ []event) error {
		var frames []byte
		for _, name := range append([]string{"unknown"}, a.cfg.Barriers...) {
			body := jsonOf(barrier{name, future})
			frames = appendFrame(appendFrame(frames, frameBarrier, 0, 0, body), frameBarrier, 1, 0, body)
		}
		return s.write(appendFrame(appendFrame(frames, frameReady, 1, 0, nil), frameSeen, 0, 0, nil))
	})
}

func (a *attack) members(ctx context.Context) error {
	return a.visit(ctx, polite, func(s *session, _ []event) error {
		addrs := []string{a.cfg.Elsewhere}
		if err := s.write(appendFrame(nil, frameMembers, 0, 0, jsonOf([]member{{a.cfg.Victim, future, addrs}}))); err != nil {
			return err
		}
		for i := 0; i < 10_000 && ctx.Err() == nil; i += 100 {
			var list []member
			for k := range 100 {
				list = append(list, member{a.cfg.Node + 1 + i + k, future, addrs})
			}
			if err := s.write(appendFrame(nil, frameMembers, 0, 0, jsonOf(list))); err != nil {
				return err
			}
		}
		return nil
	})
}

// id takes the victim's place with all others.
func (a *attack) id(ctx context.Context) error {
	return a.others(func(to int) error {
		h := a.hello("join")
		h.Node, h.Incarnation = a.cfg.Victim, future
		s, err := a.join(ctx, to, h, polite)
		if err != nil {
			return err
		}
		s.stay(ctx)
		return s.why()
	})
}

func (a *attack) farewell(ctx context.Context) error {
	return a.sendFarewell(ctx, a.cfg.Incarnation)
}

// farewellFuture waits until the victim has been killed and the others know that it has ended,
// and says its farewell for all incarnations that there can be.
func (a *attack) farewellFuture(ctx context.Context) error {
	s, err := a.join(ctx, a.cfg.Victim, a.hello("join"), polite)
	if err != nil {
		return err
	}
	s.stay(ctx)
	rest(ctx, 250*time.Millisecond) // it starts again after 500 ms
	return a.sendFarewell(ctx, future)
}

// sendFarewell says the victim's farewell to all others, in a hello and in a frame.
func (a *attack) sendFarewell(ctx context.Context, incarnation uint64) error {
	f := farewell{Node: a.cfg.Victim, Incarnation: incarnation, Reason: "a lie"}
	err := a.others(func(to int) error {
		h := a.hello("farewell")
		h.Node, h.Incarnation, h.Farewell = f.Node, f.Incarnation, &f
		conn, _, err := a.greet(ctx, to, h, nil)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return errors.Join(err, a.visit(ctx, polite, func(s *session, _ []event) error {
		if s.to == f.Node {
			return nil
		}
		return s.write(appendFrame(nil, frameFarewell, 0, 0, jsonOf(f)))
	}))
}

// own declares n more events, which no honest node has.
func (s *session) own(events []event, n int, name func(i int) string) error {
	var frames []byte
	for i := range n {
		number := uint16(len(events) + i) //nolint:gosec // the sum is small
		frames = appendFrame(frames, frameDeclare, 1, number, jsonOf(declaration{Name: name(i), Delivery: "reliable", Fingerprint: "1"}))
		if len(frames) > 256<<10 || i == n-1 {
			if err := s.write(frames); err != nil {
				return err
			}
			frames = frames[:0]
		}
	}
	return nil
}

// unfinished announces 1 GiB on each event, and sends 64 KiB of it.
func (a *attack) unfinished(ctx context.Context) error {
	const more = 600
	return a.visit(ctx, polite, func(s *session, events []event) error {
		if err := s.own(events, more, func(i int) string { return fmt.Sprint("unfinished ", i) }); err != nil {
			return err
		}
		piece := make([]byte, 64<<10)
		for number := range len(events) + more {
			if err := s.message(uint16(number), 1, 1<<30, piece); err != nil {
				return err
			}
		}
		return nil
	})
}

// amplify fills a [Bag] with values that have one byte each.
func (a *attack) amplify(ctx context.Context) error {
	const n = 4 << 20
	payload := []byte{0x83}
	for _, one := range []byte{0x80, 0x80, 0xa0} { // an empty list, an empty list, an empty map
		payload = append(payload, 0x9a, n>>24, n>>16&0xff, n>>8&0xff, n&0xff)
		payload = append(payload, bytes.Repeat([]byte{one}, n)...)
	}
	return a.others(func(to int) error {
		s, err := a.join(ctx, to, a.hello("join"), polite)
		if err != nil {
			return err
		}
		e, err := s.find(ctx, a.cfg.Amplified)
		if err != nil {
			return err
		}
		if err := s.message(e.number, 1, uint64(len(payload)), payload); err != nil {
			return errors.Join(err, s.why())
		}
		s.stay(ctx)
		return s.why()
	})
}

func (a *attack) undecodable(ctx context.Context) error {
	return a.visit(ctx, polite, func(s *session, _ []event) error {
		e, err := s.find(ctx, a.cfg.Reliable)
		if err != nil {
			return err
		}
		return s.write(appendFrame(nil, frameData, 0, e.number, append(numbers(1), 0xff, 0xff)))
	})
}

// messages sends bytes that listeners can decode, as an array of four empty fields, and
// waits for no credit.
func (a *attack) messages(ctx context.Context) error {
	return a.visit(ctx, polite, func(s *session, _ []event) error {
		e, err := s.find(ctx, a.cfg.Reliable)
		if err != nil {
			return err
		}
		for version := uint64(1); version < 40_000 && ctx.Err() == nil; {
			var frames []byte
			for range 2000 {
				frames = appendFrame(frames, frameData, 0, e.number, append(numbers(version), 0x84, 0, 0, 0, 0x40))
				version++
			}
			if err := s.write(frames); err != nil {
				return err
			}
		}
		return nil
	})
}

// declare continues until the node has had enough.
func (a *attack) declare(ctx context.Context) error {
	return a.visit(ctx, polite, func(s *session, events []event) error {
		long := strings.Repeat("x", 2000)
		return s.own(events, 16_000-len(events), func(i int) string { return fmt.Sprint(i, long) })
	})
}

// departs joins the victim under one id after the other.
func (a *attack) departs(ctx context.Context) error {
	var errs []error
	for i := range 20 {
		if ctx.Err() != nil {
			break
		}
		h := a.hello("join")
		h.Node += i
		s, err := a.join(ctx, a.cfg.Victim, h, polite)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		events, err := s.declared(ctx)
		if err == nil {
			err = s.own(events, 15_000, func(k int) string { return fmt.Sprint("departed ", i, k) })
		}
		if err == nil {
			err = s.bye()
		}
		s.stay(ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// joins joins and leaves, in order and not, under its own id and others.
func (a *attack) joins(ctx context.Context) error {
	return a.each(func(to int) error {
		for i := 0; i < mostJoins && ctx.Err() == nil; i++ {
			h := a.hello("join")
			if i%2 == 1 {
				h.Node += 1 + i%500
			}
			s, err := a.join(ctx, to, h, polite)
			if err != nil {
				rest(ctx, time.Millisecond) // the node before has just gone
				continue
			}
			if _, err := s.declared(ctx); err != nil {
				continue
			}
			if i%4 < 2 {
				_ = s.bye() // it has gone if that fails
				s.stay(ctx)
			}
			_ = s.conn.Close()
			<-s.ended
		}
		return nil
	})
}

// relay asks for pipes to the victim, and for the end of pipes that are not there.
func (a *attack) relay(ctx context.Context) error {
	target := a.cfg.Victim
	if target == 0 {
		target = min(1, len(a.cfg.Addrs)-1)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	for i := range mostPipes {
		all.Go(func() {
			h := a.hello("relay")
			h.Target = target
			if i%4 == 3 {
				h.Purpose, h.Ticket = "answer", "ticket"
			}
			conn, _, err := a.greet(ctx, 0, h, nil)
			if err == nil {
				<-ctx.Done()
				err = conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
		})
		rest(ctx, time.Millisecond)
	}
	all.Wait()
	return first
}

// refuse tells the victim that it has been given up.
func (a *attack) refuse(ctx context.Context) error {
	conn, _, err := a.greet(ctx, a.cfg.Victim, a.hello("join"), &refusal{"lost", control})
	if err != nil {
		return err
	}
	return conn.Close()
}

// texts puts control characters wherever there is text.
func (a *attack) texts(ctx context.Context) error {
	return a.each(func(to int) error {
		dirty := func(purpose string) hello {
			h := a.hello(purpose)
			h.Version, h.Labels, h.Addrs = control, []string{control}, []string{control}
			return h
		}
		var errs []error
		for _, h := range []hello{dirty(control), dirty("answer"), dirty("farewell"), {Protocol: 2, Version: control, Job: a.cfg.Job}} {
			h.Ticket = control
			if h.Purpose == "farewell" {
				h.Node, h.Farewell = a.cfg.Node+1, &farewell{Reason: control}
			}
			if conn, _, err := a.greet(ctx, to, h, nil); err == nil {
				errs = append(errs, conn.Close())
			}
		}
		s, err := a.join(ctx, to, dirty("join"), polite)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		events, err := s.declared(ctx)
		if err != nil {
			return err
		}
		err = errors.Join(
			s.own(events, 3, func(i int) string { return fmt.Sprint(control, i) }),
			s.write(appendFrame(nil, frameBarrier, 0, 0, jsonOf(barrier{control, 1}))),
			s.write(appendFrame(nil, frameMembers, 0, 0, jsonOf([]member{{a.cfg.Victim, 1, []string{control}}}))),
			s.write(appendFrame(nil, frameFarewell, 0, 0, jsonOf(farewell{Node: a.cfg.Node + 2, Incarnation: 1, Reason: control}))),
			s.write(appendFrame(nil, frameBye, 0, 0, []byte(control))),
		)
		s.stay(ctx)
		return errors.Join(append(errs, err)...)
	})
}

// frames sends bytes that are no frames, and frames that are no sense.
func (a *attack) frames(ctx context.Context) error {
	return a.each(func(to int) error {
		for i := 0; i < 60 && ctx.Err() == nil; i++ {
			if err := a.nonsense(ctx, to, i); err != nil && ctx.Err() == nil {
				rest(ctx, 10*time.Millisecond)
			}
		}
		return nil
	})
}

// nonsense is one connection of frames.
func (a *attack) nonsense(ctx context.Context, to, i int) error {
	if i%3 == 0 { // in the handshake
		conn, err := a.cfg.Dialer.Dial(ctx, a.cfg.Addrs[to])
		if err != nil {
			return err
		}
		whole := append(append(append([]byte(nil), magic...), 200, 0, 0, 0), a.random(200)...)
		_, err = conn.Write(whole[:a.upTo(len(whole))])
		return errors.Join(err, conn.Close())
	}
	h := a.hello("join")
	h.Node += i % 8
	s, err := a.join(ctx, to, h, polite)
	if err != nil {
		return err
	}
	if _, err := s.declared(ctx); err != nil {
		return err
	}
	types := []byte{1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 75, 76, 77, 78, byte(a.upTo(256))} //nolint:gosec // a byte
	for range 1 + a.upTo(20) {
		f := appendFrame(nil, types[a.upTo(len(types))], byte(a.upTo(3)), uint16(a.upTo(12)), a.random(a.upTo(64))) //nolint:gosec // small
		if err := s.write(f); err != nil {
			return err
		}
	}
	if i%3 == 1 { // a frame that is cut off
		if err := s.write(appendFrame(nil, frameData, 0, 0, a.random(1000))[:500]); err != nil {
			return err
		}
	}
	rest(ctx, 20*time.Millisecond)
	err = s.conn.Close()
	<-s.ended
	return err
}

// rest waits, no longer than until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
