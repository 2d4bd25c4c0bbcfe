package router

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"
)

// deafTransport makes no connections.
type deafTransport struct {
	Transport
	dialed chan net.Conn
}

func (c deafTransport) Dial(context.Context, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	c.dialed <- theirs
	return ours, nil
}

// A leaf that is calling a hub back which does not answer closes at once, and not
// after the hour that the handshake may take here.
func TestCloseDoesNotWaitForTheHub(t *testing.T) {
	c := deafTransport{dialed: make(chan net.Conn)}
	r, err := New(Config{
		Node: 1, Topology: Star, Attach: []string{"hub"}, Transport: c, HandshakeTimeout: time.Hour,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.answerRelay(relayMsg{Ticket: "t", From: 2})
	<-c.dialed
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
