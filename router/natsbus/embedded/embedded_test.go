package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

func TestOnlyWhoKnowsTheTokenIsServed(t *testing.T) {
	const word = "word"
	s := start(t, embedded.Config{Token: word})
	nc, err := nats.Connect(s.URL(), nats.Token(word))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	for _, opts := range [][]nats.Option{{nats.Token("guess")}, nil} {
		if _, err := nats.Connect(s.URL(), opts...); err == nil {
			t.Error("a stranger is served")
		}
	}
	if s.URL() != "nats://127.0.0.1:"+strconv.Itoa(s.Port()) || s.Port() == 0 {
		t.Errorf("listens at %s", s.URL())
	}
}

func TestBusyPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = embedded.Start(t.Context(), embedded.Config{Port: port})
	if want := "NATS server: listen tcp 127.0.0.1:" + strconv.Itoa(port) + ": bind: address already in use"; err == nil || err.Error() != want || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := embedded.Start(t.Context(), embedded.Config{Host: "no.such.host.invalid"}); err == nil {
		t.Error("it listens nowhere")
	}
}

func TestCloseWaitsForClientsAndForItsContext(t *testing.T) {
	s := start(t, embedded.Config{})
	nc, err := nats.Connect(s.URL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.Close(short)
	if short.Err() == nil {
		t.Error("it did not wait for its client")
	}

	again := start(t, embedded.Config{})
	other, err := nats.Connect(again.URL())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		again.Close(context.Background()) // for as long as it takes
		close(closed)
	}()
	other.Close()
	<-closed
}
