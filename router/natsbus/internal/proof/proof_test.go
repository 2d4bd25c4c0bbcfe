package proof_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/router/natsbus/internal/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

// pair is a connection over loopback.
func pair(t testing.TB) (dialled, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialled, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialled, accepted} {
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return dialled, accepted
}

// meet lets both sides prove themselves, each with its key.
func meet(client, server net.Conn, clientKey, serverKey string) (clientErr, serverErr error) {
	ended := make(chan error, 1)
	go func() {
		err := proof.Server(server, []byte(serverKey))
		if err != nil {
			_ = server.Close()
		}
		ended <- err
	}()
	clientErr = proof.Client(client, []byte(clientKey))
	_ = client.Close()
	return clientErr, <-ended
}

func TestBothSidesMustKnowTheKey(t *testing.T) {
	client, server := pair(t)
	if c, s := meet(client, server, "key", "key"); c != nil || s != nil {
		t.Errorf("the same key: %v, %v", c, s)
	}
	for _, keys := range [][2]string{{"key", "other"}, {"", "key"}, {"key", ""}} {
		client, server := pair(t)
		if c, s := meet(client, server, keys[0], keys[1]); !errors.Is(c, proof.ErrKey) || !errors.Is(s, proof.ErrKey) {
			t.Errorf("%q: %v, %v", keys, c, s)
		}
	}
}

// recorded is a connection that records the bytes read from it and written to it.
type recorded struct {
	net.Conn
	in, out bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.in.Write(b[:n])
	return n, err
}

func (r *recorded) Write(b []byte) (int, error) {
	r.out.Write(b)
	return r.Conn.Write(b)
}

// TestRecordingIsRefused: the recorded messages of one side are of no use another time, to either
// side.
func TestRecordingIsRefused(t *testing.T) {
	client, server := pair(t)
	tape := &recorded{Conn: client}
	if c, s := meet(tape, server, "key", "key"); c != nil || s != nil {
		t.Fatal(c, s)
	}
	if bytes.Contains(tape.out.Bytes(), []byte("key")) || bytes.Contains(tape.in.Bytes(), []byte("key")) {
		t.Error("the key is sent")
	}
	client, server = pair(t)
	_, _ = client.Write(tape.out.Bytes())
	if err := proof.Server(server, []byte("key")); !errors.Is(err, proof.ErrKey) {
		t.Errorf("a client that repeats another client's messages: %v", err)
	}
	client, server = pair(t)
	_, _ = server.Write(tape.in.Bytes())
	if err := proof.Client(client, []byte("key")); !errors.Is(err, proof.ErrKey) {
		t.Errorf("a server that repeats another server's messages: %v", err)
	}
}

// TestEchoIsRefused: a client's own nonce and proof prove nothing to it.
func TestEchoIsRefused(t *testing.T) {
	client, server := pair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.CopyN(server, server, 40)
		own := make([]byte, 32)
		_, _ = io.ReadFull(server, own)
		_, _ = server.Write(append([]byte{1}, own...))
	}()
	if err := proof.Client(client, []byte("key")); !errors.Is(err, proof.ErrKey) {
		t.Error(err)
	}
	<-done
}

func TestUnauthenticatedClientsAreNamed(t *testing.T) {
	magic := []byte{'d', 'i', 't', 'n', 'a', 't', 's', 1}
	for _, c := range []struct {
		said []byte
		want error
	}{
		{[]byte("INFO {\"server_id\":\"x\"}\r\n"), proof.ErrForeign},
		{append([]byte("ditnats\x02"), make([]byte, 100)...), proof.ErrForeign},
		{[]byte("GET / HTTP/1.1\r\n\r\n"), proof.ErrForeign},
		{[]byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196}, proof.ErrTLS},
		{[]byte{0x15, 3, 3, 0, 2, 2, 40}, proof.ErrTLS},
		{append(magic[:8:8], make([]byte, 64)...), proof.ErrKey},
		{magic[:4], io.ErrUnexpectedEOF},
		{magic, io.EOF},
		{nil, io.EOF},
	} {
		for name, side := range map[string]func(net.Conn, []byte) error{"client": proof.Client, "server": proof.Server} {
			near, far := pair(t)
			_, _ = far.Write(c.said)
			_ = far.(*net.TCPConn).CloseWrite()
			if err := side(near, []byte("key")); !errors.Is(err, c.want) {
				t.Errorf("%s, %q: %v, want %v", name, c.said, err, c.want)
			}
		}
	}
}

func TestSilenceEndsWithTheDeadline(t *testing.T) {
	near, _ := pair(t)
	_ = near.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if err := proof.Server(near, []byte("key")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// TestManInTheMiddleOfTLS has a certificate of the job, but not its token: each side has TLS with it,
// and it relays their messages.
func TestManInTheMiddleOfTLS(t *testing.T) {
	f := certtest.New(t)
	cfg, err := certs.Mutual(f.Cert, f.Key, f.CA)
	if err != nil {
		t.Fatal(err)
	}
	client, left := pair(t)
	right, server := pair(t)
	ends := []*tls.Conn{tls.Client(client, cfg), tls.Server(left, cfg), tls.Client(right, cfg), tls.Server(server, cfg)}
	done := make(chan struct{}, 2)
	for _, way := range [][2]*tls.Conn{{ends[1], ends[2]}, {ends[2], ends[1]}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			done <- struct{}{}
		}()
	}
	c, s := meet(ends[0], ends[3], "key", "key")
	if !errors.Is(c, proof.ErrKey) || !errors.Is(s, proof.ErrKey) {
		t.Errorf("%v, %v", c, s)
	}
	<-done
	<-done

	client, server = pair(t)
	if c, s := meet(tls.Client(client, cfg), tls.Server(server, cfg), "key", "key"); c != nil || s != nil {
		t.Errorf("without a process in the middle: %v, %v", c, s)
	}
}

// said is a connection whose other side has sent some bytes and closed it.
type said struct {
	net.Conn
	io.Reader
}

func (s said) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s said) Write(b []byte) (int, error) { return len(b), nil }

func FuzzProof(f *testing.F) {
	f.Add([]byte("ditnats\x01"))
	f.Add(append([]byte("ditnats\x01"), make([]byte, 65)...))
	f.Add(append(append([]byte("ditnats\x01"), make([]byte, 32)...), append([]byte{1}, make([]byte, 32)...)...))
	f.Add([]byte{0x16, 3, 1, 0, 200, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, side := range []func(net.Conn, []byte) error{proof.Client, proof.Server} {
			if err := side(said{Reader: bytes.NewReader(b)}, []byte("key")); err == nil {
				t.Errorf("%q is accepted as a proof", b)
			}
		}
	})
}
