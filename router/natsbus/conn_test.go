package natsbus_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/natsbus/embedded"
	"github.com/ditask/ditask/router/socket"
)

// pair connects two transports, each with a separate connection with the server.
func pair(t *testing.T, cfg natsbus.Config) (dialled, accepted net.Conn) {
	t.Helper()
	l, err := open(t, cfg).Listen(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	dialled, err = open(t, cfg).Dial(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	for _, c := range []net.Conn{dialled, accepted} {
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return dialled, accepted
}

func TestCloseComesAfterTheWrittenBytes(t *testing.T) {
	a, b := pair(t, natsbus.Config{URL: plain(t, server.Options{}).ClientURL()})
	want := bytes.Repeat([]byte("0123456789"), 60_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := a.Write(want); n != len(want) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		_ = a.Close()
	})
	got, err := io.ReadAll(b)
	wg.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if _, err := b.Write([]byte("x")); err == nil {
		t.Error("a write to a closed connection succeeds")
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
}

func TestFullWindowMakesTheWriterWait(t *testing.T) {
	a, b := pair(t, natsbus.Config{URL: plain(t, server.Options{}).ClientURL(), Nodes: 1000})
	try := a.(interface {
		TryWrite(b []byte) (int, error)
	})
	total := 0
	for { // until nothing more fits
		n, err := try.TryWrite(make([]byte, 10_000))
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n == 0 {
			break
		}
	}
	if total == 0 || total > 256<<10 {
		t.Errorf("%d bytes went out without an answer, the window is 256 KiB", total)
	}
	if err := a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write(make([]byte, 10_000)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write to a full window: %v", err)
	}
	if err := a.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Write(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.ReadFull(b, make([]byte, total+1<<20)); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := b.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of nothing: %v", err)
	}
}

func TestCloseUnblocksReadAndWrite(t *testing.T) {
	a, _ := pair(t, natsbus.Config{URL: plain(t, server.Options{}).ClientURL()})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
	})
	wg.Go(func() {
		if _, err := a.Write(make([]byte, 16<<20)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	})
	_ = a.Close()
	wg.Wait()
}

// TestOtherEndIsNotifiedOfALostServer: the end that sends nothing is notified too.
func TestOtherEndIsNotifiedOfALostServer(t *testing.T) {
	s := plain(t, server.Options{})
	p := newProxy(t, s.ClientURL())
	l, err := open(t, natsbus.Config{URL: s.ClientURL()}).Listen(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, natsbus.Config{URL: p.url()}).Dial(soon(t), "bus://node.0"); err != nil {
		t.Fatal(err)
	}
	k, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.cut()
	_ = k.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := k.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "lost its connection with the NATS server") {
		t.Error(err)
	}
}

// TestCloseOfATransportNotifiesTheOthers closes many connections, and the transport at
// once after them.
func TestCloseOfATransportNotifiesTheOthers(t *testing.T) {
	url := plain(t, server.Options{}).ClientURL()
	l, err := open(t, natsbus.Config{URL: url}).Listen(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, natsbus.Config{URL: url})
	var accepted []net.Conn
	for range 100 {
		if _, err := c.Dial(soon(t), "bus://node.0"); err != nil {
			t.Fatal(err)
		}
		k, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, k)
	}
	_ = c.Close()
	for i, k := range accepted {
		_ = k.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err := k.Read(make([]byte, 1))
		asked := err != nil && strings.Contains(err.Error(), "no such connection") // by a dial that had to ask again
		if !errors.Is(err, io.EOF) && !asked {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}

// takesSome is a connection whose other side takes a limited number of bytes.
func takesSome(t *testing.T, n int) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	go func() { _, _ = io.CopyN(io.Discard, there, int64(n)) }()
	return here
}

func TestWriteToTheServerIsBoundedAndNotContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece = 64 << 10
		whole := natsbus.Socket(takesSome(t, 5*piece), time.Second)
		if n, err := whole.Write(make([]byte, 5*piece)); n != 5*piece || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		part := natsbus.Socket(takesSome(t, piece+10), time.Second)
		if n, err := part.Write(make([]byte, 5*piece)); n != piece+10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := part.Write([]byte("x")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after a part of a message: %d, %v", n, err)
		}
	})
}

// TestEachPieceHasItsTime writes for longer than one piece may take.
func TestEachPieceHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece = 64 << 10
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			defer there.Close()
			for range 5 {
				<-time.After(900 * time.Millisecond)
				_, _ = io.CopyN(io.Discard, there, piece)
			}
		}()
		if n, err := natsbus.Socket(here, time.Second).Write(make([]byte, 5*piece)); n != 5*piece || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestMissingAndForeignMessagesBreak(t *testing.T) {
	s := plain(t, server.Options{})
	for name, raw := range map[string][]byte{
		"missing":   message(kindData, 2, 0, "x"),
		"garbage":   []byte("hello"),
		"empty":     {},
		"over kind": message(99, 0, 0, ""),
		"unearned":  message(kindAck, 0, 1<<20, ""),
	} {
		t.Run(name, func(t *testing.T) {
			tap := newTap(t, s, name)
			a, b := pair(t, natsbus.Config{URL: s.ClientURL(), Job: name})
			tap.ends(t)
			tap.inject(t, tap.accepted, raw)
			for side, c := range map[string]net.Conn{"the receiver": b, "the other end": a} {
				_, err := c.Read(make([]byte, 1))
				if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v", side, err)
				}
				if name == "missing" && !strings.Contains(err.Error(), "bytes 0 to 2 are missing") {
					t.Errorf("%s: %v", side, err)
				}
			}
		})
	}
}

func TestBytesBeforeAGapAreRead(t *testing.T) {
	s := plain(t, server.Options{})
	tap := newTap(t, s, "job")
	a, b := pair(t, natsbus.Config{URL: s.ClientURL()})
	if _, err := a.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	tap.ends(t)
	if _, err := io.ReadFull(b, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	tap.inject(t, tap.accepted, message(kindData, 9, 0, "after"))
	got, err := io.ReadAll(b)
	if string(got) != "ore" || err == nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDialAndListenFaults(t *testing.T) {
	s := plain(t, server.Options{})
	c := open(t, natsbus.Config{URL: s.ClientURL()})
	const want = "bus://node.7: connection refused: no node has this address: " +
		"start the node, with the same job id and NATS server"
	if _, err := c.Dial(soon(t), "bus://node.7"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Error(err)
	}
	l, err := c.Listen(soon(t), "bus://node.7")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Listen(soon(t), "bus://node.7"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("taken: %v", err)
	}
	other := open(t, natsbus.Config{URL: s.ClientURL(), Job: "job.other"})
	if _, err := other.Dial(soon(t), "bus://node.7"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a node of another job: %v", err)
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := c.Dial(soon(t), "bus://node.7"); err == nil {
		t.Error("a closed listener answers")
	}
	for _, bad := range []string{"", "bus://x", "bus://node.-1", "bus://node.01", "tcp://h:1"} {
		if _, err := c.Dial(soon(t), bad); err == nil {
			t.Errorf("%q is accepted as an address", bad)
		}
	}
	_ = c.Close()
	if _, err := c.Dial(soon(t), "bus://node.7"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestJobKeyDoesNotRevealTheToken(t *testing.T) {
	word := natsbus.JobKey("secret")
	if word == "" || strings.Contains(word, "secret") || word == natsbus.JobKey("other") || natsbus.JobKey("") != "" {
		t.Errorf("token %q", word)
	}
}

func TestConfigFaultsAreAllReported(t *testing.T) {
	_, err := natsbus.New(natsbus.Config{URL: "http://u:secret@h", Nodes: -1})
	for _, want := range []string{"job's id is missing", "http://h: want nats://host:port", "-1 nodes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if _, err := natsbus.New(natsbus.Config{URL: "tls://h", Job: "j", Key: "k"}); err == nil ||
		!strings.Contains(err.Error(), "tls://h: with a Key, want nats://host:port") {
		t.Error(err)
	}
}

// refusal is the error of a transport that cannot listen.
func refusal(t *testing.T, cfg natsbus.Config) string {
	t.Helper()
	_, err := open(t, cfg).Listen(soon(t), "bus://node.0")
	if err == nil {
		t.Fatal("it listens")
	}
	return err.Error()
}

func TestServerFaultsNameTheServerAndTheRemedy(t *testing.T) {
	s := plain(t, server.Options{Authorization: "right"})
	if got := refusal(t, natsbus.Config{URL: s.ClientURL(), Token: "wrong"}); !strings.Contains(got, s.ClientURL()) ||
		!strings.Contains(got, "check the token") || strings.Contains(got, "wrong") {
		t.Error(got)
	}
	got := refusal(t, natsbus.Config{URL: "nats://u:secret@127.0.0.1:1", ConnectTimeout: 50 * time.Millisecond})
	if !strings.Contains(got, "no NATS server at nats://127.0.0.1:1: ") ||
		!strings.Contains(got, "connection refused: start one there, or correct the URL") || strings.Contains(got, "secret") {
		t.Error(got)
	}
	tiny := plain(t, server.Options{MaxPayload: 1024})
	if got := refusal(t, natsbus.Config{URL: tiny.ClientURL()}); !strings.Contains(got, "max_payload is 1024 bytes: want at least 4096") {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := open(t, natsbus.Config{URL: "nats://127.0.0.1:1"}).Listen(ctx, "bus://node.0"); err == nil {
		t.Error("a context that has ended does not end the wait")
	}
}

func TestServerThatComesLaterIsWaitedFor(t *testing.T) {
	port := freeport.Get(t, 1)
	c := open(t, natsbus.Config{URL: "nats://127.0.0.1:" + strconv.Itoa(port)})
	var wg sync.WaitGroup
	wg.Go(func() {
		l, err := c.Listen(soon(t), "bus://node.0")
		if err != nil {
			t.Error(err)
			return
		}
		_ = l.Close()
	})
	outage(t, 50*time.Millisecond)
	s := plain(t, server.Options{Port: port})
	wg.Wait()
	_ = c.Close()
	stop(s)
}

func TestPermissionsOfOneJobAreEnough(t *testing.T) {
	only := &server.SubjectPermission{Allow: []string{"ditask.a.>"}}
	permissions := &server.Permissions{Publish: only, Subscribe: only}
	s := plain(t, server.Options{Users: []*server.User{{Username: "u", Password: "p", Permissions: permissions}}})
	url := strings.Replace(s.ClientURL(), "nats://", "nats://u:p@", 1)
	a, b := pair(t, natsbus.Config{URL: url, Job: "a"})
	if _, err := a.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	got := refusal(t, natsbus.Config{URL: url, Job: "a.b"})
	if !strings.Contains(got, "allow this user to publish and subscribe to ditask.a~2eb.>") {
		t.Error(got)
	}
}

func TestNKeyAndCredentials(t *testing.T) {
	dir := t.TempDir()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := user.Seed()
	public, _ := user.PublicKey()
	seedFile := filepath.Join(dir, "u.nk")
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	s := plain(t, server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	pair(t, natsbus.Config{URL: s.ClientURL(), NKeyFile: seedFile})
	if got := refusal(t, natsbus.Config{URL: s.ClientURL()}); !strings.Contains(got, "check the token, user, credentials or nkey") {
		t.Error(got)
	}

	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	accountKey, _ := account.PublicKey()
	operatorKey, _ := operator.PublicKey()
	oc := jwt.NewOperatorClaims(operatorKey)
	if _, err := oc.Encode(operator); err != nil {
		t.Fatal(err)
	}
	accountJWT, err := jwt.NewAccountClaims(accountKey).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	userJWT, err := jwt.NewUserClaims(public).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		t.Fatal(err)
	}
	credsFile := filepath.Join(dir, "u.creds")
	if err := os.WriteFile(credsFile, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(accountKey, accountJWT); err != nil {
		t.Fatal(err)
	}
	js := plain(t, server.Options{TrustedOperators: []*jwt.OperatorClaims{oc}, AccountResolver: resolver})
	pair(t, natsbus.Config{URL: js.ClientURL(), CredsFile: credsFile})
	if got := refusal(t, natsbus.Config{URL: js.ClientURL(), CredsFile: credsFile + "x"}); !strings.Contains(got, "no such file") {
		t.Error(got)
	}
}

func TestTLSToAServerWithAName(t *testing.T) {
	f, other := certtest.New(t), certtest.New(t)
	tlsConfig, err := socket.LoadTLS(f.Cert, f.Key, f.CA)
	if err != nil {
		t.Fatal(err)
	}
	s := plain(t, server.Options{TLSConfig: tlsConfig, TLS: true, TLSVerify: true, TLSTimeout: 5})
	url := strings.Replace(s.ClientURL(), "nats://", "tls://", 1)
	right, err := certs.Client(f.Cert, f.Key, f.CA)
	if err != nil {
		t.Fatal(err)
	}
	pair(t, natsbus.Config{URL: url, TLS: right})
	wrong, err := certs.Client(other.Cert, other.Key, other.CA)
	if err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, natsbus.Config{URL: url, TLS: wrong}); !strings.Contains(got, "check the certificates") {
		t.Error(got)
	}
	plaintext := plain(t, server.Options{}).ClientURL()
	if got := refusal(t, natsbus.Config{URL: plaintext, TLS: right}); !strings.Contains(got, "whether both sides use TLS") {
		t.Error(got)
	}
}

func TestCheckDescribesTheServer(t *testing.T) {
	s := ours(t, embedded.Config{Token: "word"})
	info, err := natsbus.Check(soon(t), natsbus.Config{URL: strings.Replace(s.URL(), "//", "//word@", 1), Job: "doctor", Logger: quiet()})
	if err != nil || info.Server != server.VERSION || info.URL != s.URL() || info.RoundTrip <= 0 || info.MaxPayload != 1<<20 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestSubjectsStayBelowTheJob receives all messages between two nodes.
func TestSubjectsStayBelowTheJob(t *testing.T) {
	s := plain(t, server.Options{})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	a, b := pair(t, natsbus.Config{URL: s.ClientURL(), Job: "x.y z"})
	_, _ = a.Write([]byte("x"))
	_, _ = b.Read(make([]byte, 1))
	for range 3 { // dial, accept, data
		m, err := sub.NextMsgWithContext(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.Subject, "ditask.x~2ey~20z.") || !strings.HasPrefix(m.Reply, "ditask.x~2ey~20z.conn.") {
			t.Errorf("subject %q, reply %q", m.Subject, m.Reply)
		}
	}
}
