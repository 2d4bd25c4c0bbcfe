package memory_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router/memory"
)

const bufferBytes = 64 << 10 // of one direction

// pair is a connection.
func pair(t *testing.T) (dialed, accepted net.Conn) {
	t.Helper()
	network := memory.New()
	l, err := network.Listen(t.Context(), "mem://a")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	if dialed, err = network.Dial(t.Context(), "mem://a"); err != nil {
		t.Fatal(err)
	}
	accepted = <-got
	_ = l.Close()
	return dialed, accepted
}

type tryWriter interface{ TryWrite(b []byte) (int, error) }

// Bytes arrive in order and once, for any sizes of writes and reads.
func TestBytesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		a, b := pair(t)
		want := make([]byte, 1<<20)
		for i := range want {
			want[i] = byte(rnd.Uint32())
		}
		go func() {
			for rest := want; len(rest) > 0; {
				n := min(1+rnd.IntN(3*bufferBytes/2), len(rest))
				if k, err := a.Write(rest[:n]); k != n || err != nil {
					t.Error(k, err)
				}
				rest = rest[n:]
			}
			_ = a.Close()
		}()
		sizes := rand.New(rand.NewPCG(3, 4))
		var got []byte
		for {
			part := make([]byte, 1+sizes.IntN(bufferBytes+1000))
			n, err := b.Read(part)
			got = append(got, part[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes received, not equal to the %d sent", len(got), len(want))
		}
	})
}

// TryWrite writes as much as there is room for; Write waits for room, a reader for bytes.
func TestFullBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		try := a.(tryWriter)
		for _, want := range []int{bufferBytes - 10, 10, 0} {
			if n, err := try.TryWrite(make([]byte, bufferBytes-10)); n != want || err != nil {
				t.Errorf("%d, %v, want %d", n, err, want)
			}
		}
		wrote := make(chan int, 1) // one result
		go func() { n, _ := a.Write(make([]byte, 5)); wrote <- n }()
		synctest.Wait()
		if len(wrote) != 0 {
			t.Error("a write into a full buffer returns")
		}
		got := make([]byte, bufferBytes)
		if n, err := b.Read(got[:3]); n != 3 || err != nil {
			t.Error(n, err)
		}
		synctest.Wait()
		if len(wrote) != 0 {
			t.Error("a write returns before all is in the buffer")
		}
		if n, err := b.Read(got[:1]); n != 1 || err != nil {
			t.Error(n, err)
		}
		if n, err := b.Read(got[:1]); n != 1 || err != nil || <-wrote != 5 {
			t.Error(n, err)
		}
		if n, err := b.Read(got); n != bufferBytes || err != nil {
			t.Error(n, err)
		}
		read := make(chan int, 1) // one result
		go func() { n, _ := b.Read(got); read <- n }()
		synctest.Wait()
		if n, err := try.TryWrite([]byte("xyz")); n != 3 || err != nil || <-read != 3 {
			t.Error(n, err)
		}
	})
}

// Data written before the end of a connection can be read, and the end follows it. The other side
// cannot write any more.
func TestCloseKeepsDataUnderWay(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"close":       func(c net.Conn) { _ = c.Close() },
		"close write": func(c net.Conn) { _ = c.(interface{ CloseWrite() error }).CloseWrite() },
		"break":       func(c net.Conn) { c.(interface{ Break() }).Break() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			_, _ = a.Write([]byte("last"))
			_, _ = b.Write([]byte("words"))
			end(a)
			got, err := io.ReadAll(b)
			if err != nil || string(got) != map[bool]string{true: "", false: "last"}[name == "break"] {
				t.Errorf("read %q, %v", got, err)
			}
			if _, err := a.Write([]byte("x")); err == nil {
				t.Error("a write of the closed side succeeds")
			}
			if _, err := b.Write([]byte("x")); (err == nil) != (name == "close write") {
				t.Errorf("a write of the other side: %v", err)
			}
			if name == "close write" {
				_ = b.Close()
				if got, err := io.ReadAll(a); err != nil || string(got) != "wordsx" {
					t.Errorf("read %q, %v", got, err)
				}
			}
		})
	}
}

// The end of a connection wakes every goroutine that waits for it.
func TestCloseWakesWaitingGoroutines(t *testing.T) {
	for name, end := range map[string]func(a, b net.Conn){
		"here": func(a, _ net.Conn) { _ = a.Close() }, "there": func(_, b net.Conn) { _ = b.Close() },
		"cut": func(a, _ net.Conn) { a.(interface{ Break() }).Break() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := pair(t)
				woken := make(chan error, 2) // a reader and a writer
				go func() { _, err := a.Read(make([]byte, 1)); woken <- err }()
				go func() { _, err := a.Write(make([]byte, 2*bufferBytes)); woken <- err }()
				synctest.Wait()
				if len(woken) != 0 {
					t.Error("neither waits")
				}
				end(a, b)
				for range 2 {
					if <-woken == nil {
						t.Error("no error")
					}
				}
			})
		})
	}
}

// A deadline ends waiting and later reads or writes, until another deadline is set.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		began := time.Now()
		took := func(want time.Duration, err error) {
			t.Helper()
			if got := time.Since(began); got != want || !errors.Is(err, os.ErrDeadlineExceeded) { // of virtual time
				t.Errorf("%v after %v, want %v", err, got, want)
			}
		}
		_ = a.SetDeadline(began.Add(time.Second))
		_ = a.SetReadDeadline(began.Add(2 * time.Second)) // in place of the first
		n, err := a.Write(make([]byte, bufferBytes+1))
		took(time.Second, err)
		if n != bufferBytes {
			t.Errorf("%d bytes were written", n)
		}
		_, err = a.Read(make([]byte, 1))
		took(2*time.Second, err)
		_, err = a.(tryWriter).TryWrite([]byte("x"))
		took(2*time.Second, err)
		_ = a.SetDeadline(began.Add(3 * time.Second))
		_ = a.SetDeadline(time.Time{})
		_, _ = b.Read(make([]byte, bufferBytes))
		<-time.After(2 * time.Second)
		if n, err := a.Write([]byte("x")); n != 1 || err != nil {
			t.Errorf("without a deadline: %d, %v", n, err)
		}
		_, _ = b.Write([]byte("y"))
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("without a deadline: %d, %v", n, err)
		}
	})
}

// An address is in use until its listener is closed. A call of an address without a listener is
// refused.
func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memory.New()
		first, err := network.Listen(t.Context(), "mem://a")
		if err != nil {
			t.Fatal(err)
		}
		if got := network.Advertise(first); got != "mem://a" || first.Addr().Network() != "mem" {
			t.Errorf("%s, %s", got, first.Addr().Network())
		}
		if _, err := network.Listen(t.Context(), "mem://a"); err == nil || !strings.Contains(err.Error(), "mem://a: address in use") {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, err := network.Dial(ctx, "mem://a"); err == nil || err.Error() != "mem://a: enough" {
			t.Error(err)
		}
		refused := make(chan error, 1) // one result
		go func() { _, err := network.Dial(t.Context(), "mem://a"); refused <- err }()
		synctest.Wait()
		_ = first.Close()
		if err := <-refused; err == nil || !strings.Contains(err.Error(), "mem://a: connection refused") {
			t.Error(err)
		}
		if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := network.Dial(t.Context(), "mem://a"); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
		second, err := network.Listen(t.Context(), "mem://a")
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close() // again, without effect on the second
		if _, err := network.Listen(t.Context(), "mem://a"); err == nil {
			t.Error("the address of the second listener is free")
		}
		_ = second.Close()
	})
}
