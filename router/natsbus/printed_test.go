package natsbus_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router/natsbus"
)

// hostileLine is a hostile text in one line of NATS.
var hostileLine = strings.NewReplacer("\r", "", "\n", "").Replace(logtest.Hostile) + strings.Repeat("x", 2<<10)

// fake is a server that speaks NATS: it answers the first pings with pongs, and those after them with
// an error, after which it continues if that is a violation of permissions.
func fake(t *testing.T, pongs int, prefix string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	version, err := json.Marshal(logtest.Hostile)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // only a fault takes that long
				_, _ = fmt.Fprintf(c, `INFO {"server_id":"x","version":%s,"max_payload":1048576,"proto":1}`+"\r\n", version)
				left := pongs
				for lines := bufio.NewScanner(c); lines.Scan(); {
					switch {
					case !strings.HasPrefix(lines.Text(), "PING"):
					case left > 0:
						left--
						_, _ = fmt.Fprint(c, "PONG\r\n")
					default:
						_, _ = fmt.Fprintf(c, "-ERR '%s%s'\r\n", prefix, hostileLine)
						if prefix == "" {
							return
						}
						_, _ = fmt.Fprint(c, "PONG\r\n")
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return "nats://" + l.Addr().String()
}

// Texts of a server are printed escaped and cut.
func TestPrintedTextOfAServer(t *testing.T) {
	for pongs, want := range []string{0: `\x1b[2J`, 1: ""} {
		log := &logtest.Buffer{}
		_, err := natsbus.Check(soon(t), natsbus.Config{
			URL: fake(t, pongs, ""), Job: "j", ConnectTimeout: 100 * time.Millisecond, Logger: slog.New(logtest.Raw(log)),
		})
		if err == nil || len(err.Error()) > 4<<10 || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%d pongs: %v", pongs, err)
		}
		if faults := logtest.Faults(log.String()); faults != "" {
			t.Errorf("%d pongs: the log: %s", pongs, faults)
		}
	}
	info, err := natsbus.Check(soon(t), natsbus.Config{URL: fake(t, 100, ""), Job: "j"})
	if err != nil || logtest.Faults(info.Server+info.URL) != "" || !strings.Contains(info.Server, `\x1b[2J`) {
		t.Errorf("%+v, %v", info, err)
	}
}

// Texts that a server sends to a connected client are logged escaped and cut.
func TestPrintedErrorOfAConnectedServer(t *testing.T) {
	log := &logtest.Buffer{}
	c := open(t, natsbus.Config{URL: fake(t, 1, "Permissions Violation for "), ConnectTimeout: 100 * time.Millisecond,
		Logger: slog.New(logtest.Raw(log))})
	ctx := soon(t)
	_, err := c.Listen(ctx, "bus://node.0")
	if err == nil || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), `\x1b[2J`) {
		t.Error(err)
	}
	for !strings.Contains(log.String(), "WARN NATS") && ctx.Err() == nil { // the client logs it by a goroutine
		<-time.After(time.Millisecond)
	}
	if faults := logtest.Faults(log.String()); faults != "" || !strings.Contains(log.String(), `\x1b[2J`) {
		t.Errorf("the log: %s: %s", faults, log)
	}
}

// The other end of a connection, and any other client of the server, gives a reason why it breaks.
func TestPrintedReasonOfAReset(t *testing.T) {
	s := plain(t, server.Options{})
	tap := newTap(t, s, "job")
	a, _ := pair(t, natsbus.Config{URL: s.ClientURL()})
	tap.ends(t)
	tap.inject(t, tap.dialled, message(kindReset, 0, 0, logtest.Hostile+strings.Repeat("x", 4<<10)))
	_, err := a.Read(make([]byte, 1))
	if err == nil || len(err.Error()) > 1<<10 || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), `\x1b[2J`) {
		t.Error(err)
	}
}
