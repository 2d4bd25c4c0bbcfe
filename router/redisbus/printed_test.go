package redisbus

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// fake is a server that speaks Redis: it answers HELLO with a version, and all else with an
// error.
func fake(t *testing.T, version string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hostile := strings.NewReplacer("\r", "", "\n", "").Replace(logtest.Hostile) + strings.Repeat("x", 2<<10)
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
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if !strings.HasPrefix(lines.Text(), "*") { // a part of a command
						continue
					}
					for range 2 { // the length of the first word, and that word
						lines.Scan()
					}
					if strings.EqualFold(lines.Text(), "hello") && version != "" {
						_, _ = fmt.Fprintf(c, "*2\r\n$7\r\nversion\r\n$%d\r\n%s\r\n", len(version), version)
					} else {
						_, _ = fmt.Fprintf(c, "-%s\r\n", hostile)
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return "redis://" + l.Addr().String()
}

// Texts of a server are printed escaped and cut.
func TestPrintedTextOfAServer(t *testing.T) {
	for name, version := range map[string]string{"no version": "", "an error": "7.0.0", "an old version": "5.1." + logtest.Hostile} {
		_, err := Check(t.Context(), Config{URL: fake(t, version), Job: "j"})
		if err == nil || len(err.Error()) > 4<<10 || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), `\x1b[2J`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
