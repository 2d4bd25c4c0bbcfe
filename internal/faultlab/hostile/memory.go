package hostile

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// Frames about shared memory.
const (
	frameMapped  = 16
	frameShared  = 17
	frameRelease = 18
)

// sharedBytes is the size of the memory file of the hostile node.
const sharedBytes = 16 << 20

// shares joins each node again and again, with memory that is not what an honest node shares, or with frames about it that
// an honest node does not send. Through a transport without memory it sends the same frames.
func (a *attack) shares(ctx context.Context) error {
	return a.each(func(to int) error {
		var err error
		for ctx.Err() == nil {
			for _, lie := range []func(context.Context, int) error{a.places, a.holes, a.changes, a.files, a.keeps} {
				short, cancel := context.WithTimeout(ctx, time.Second)
				err = lie(short, to)
				cancel()
				rest(ctx, 20*time.Millisecond)
			}
		}
		return err
	})
}

// sharing joins a node with a memory file, calls do with the session and the reliable event, and stays.
func (a *attack) sharing(ctx context.Context, to int, f *os.File, do func(s *session, e event) error) error {
	return a.offering(ctx, to, refOf(f), do)
}

// offering is sharing with a description of the file, which may be wrong.
func (a *attack) offering(ctx context.Context, to int, ref *memory, do func(s *session, e event) error) error {
	h := a.hello("join")
	h.Memory = ref
	s, err := a.join(ctx, to, h, polite)
	if err != nil {
		return err
	}
	e, err := s.find(ctx, a.cfg.Reliable)
	if err != nil {
		return err
	}
	if err := do(s, e); err != nil {
		return err
	}
	s.stay(ctx)
	return s.why()
}

// at returns a message in shared memory.
func at(e event, version, total, off uint64) []byte {
	return appendFrame(nil, frameShared, 0, e.number, numbers(version, total, off))
}

// places names a wrong place, a wrong length, or a number that was not given.
func (a *attack) places(ctx context.Context, to int) error {
	f, mem := memfd(sharedBytes)
	defer forget(f, mem)
	wrong := [][3]uint64{
		{100_000, sharedBytes - 99_999}, {100_000, future}, {future, 0}, {0, 0}, {1, 0}, {sharedBytes + 1, 0}, {65_535, 0}, {1 << 30, 1 << 30},
	}
	w := wrong[a.upTo(len(wrong))]
	return a.sharing(ctx, to, f, func(s *session, e event) error {
		switch a.upTo(3) {
		case 0:
			return s.write(appendFrame(nil, frameRelease, 0, 0, numbers(w[0], w[1], 7)))
		case 1:
			return s.write(appendFrame(nil, frameMapped, 0, 0, nil))
		}
		return s.write(at(e, 1, w[0], w[1]))
	})
}

// holes sends payloads that were never written, on all events.
func (a *attack) holes(ctx context.Context, to int) error {
	f, mem := memfd(sharedBytes)
	defer forget(f, mem)
	return a.sharing(ctx, to, f, func(s *session, _ event) error {
		events, err := s.declared(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := s.write(at(e, 1, sharedBytes, 0)); err != nil {
				return err
			}
		}
		return nil
	})
}

// changes writes to payloads while they are decoded. They begin as the event that [Bag] describes.
func (a *attack) changes(ctx context.Context, to int) error {
	f, mem := memfd(sharedBytes)
	defer forget(f, mem)
	if mem == nil {
		return nil
	}
	const n = 1 << 20
	copy(mem, []byte{0x83, 0x9a, 0, n >> 16, n >> 8 & 0xff, n & 0xff}) // three fields, the first a list of n empty lists
	for i := range n {
		mem[6+i] = 0x80
	}
	mem[6+n], mem[7+n] = 0x80, 0xa0
	return a.sharing(ctx, to, f, func(s *session, _ event) error {
		e, err := s.find(ctx, a.cfg.Amplified)
		if err != nil {
			return err
		}
		for version := uint64(1); version <= 4; version++ {
			if err := s.write(at(e, version, n+8, 0)); err != nil {
				return err
			}
		}
		for ctx.Err() == nil && s.why() == nil {
			for range 1000 {
				i := a.upTo(n)
				mem[6+i] = byte(a.upTo(256)) //nolint:gosec // it fits
				mem[3] ^= 0x7f
				mem[6+i], mem[3] = 0x80, n>>16
			}
		}
		return nil
	})
}

// files offers a file that is no memory file, one that can shrink, or one that is not there.
func (a *attack) files(ctx context.Context, to int) error {
	f := openFile(a.upTo(3))
	if f != nil {
		defer func() { _ = f.Close() }()
	}
	ref := refOf(f)
	if ref != nil {
		switch wild := []int{-1, 0, 1, 1 << 31, future >> 1}[a.upTo(5)]; a.upTo(4) {
		case 0:
			ref.PID = wild
		case 1:
			ref.FD = wild
		case 2:
			ref.Name = strings.Repeat("../", a.upTo(3000))
		}
	}
	return a.offering(ctx, to, ref, func(s *session, e event) error { return s.write(at(e, 1, 100_000, 0)) })
}

// refOf returns how another process opens f; nil for none.
func refOf(f *os.File) *memory {
	if f == nil {
		return nil
	}
	to, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) // empty on other systems
	name, _ := strings.CutSuffix(strings.TrimPrefix(to, "/memfd:"), " (deleted)")
	return &memory{os.Getpid(), int(f.Fd()), name}
}

// keeps says that it has mapped the memory of the node, and releases nothing.
func (a *attack) keeps(ctx context.Context, to int) error {
	f, mem := memfd(sharedBytes)
	defer forget(f, mem)
	return a.sharing(ctx, to, f, func(s *session, _ event) error { return s.write(appendFrame(nil, frameMapped, 0, 0, nil)) })
}
