package redisbus

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestVersions(t *testing.T) {
	for v, ok := range map[string]bool{
		"5.0.14": false, "6.0.20": false, "6.2.0": true, "7.0.15": true, "7.2.4": true, "8.1.1": true, "255.255.255": true, "unstable": true,
	} {
		if err := requireVersion(v); (err == nil) != ok {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// serverError is an answer of a server.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func TestEveryRefusalHasARemedy(t *testing.T) {
	for word, what := range advice {
		err := explain("host:1", serverError(word+" and so on"))
		for _, want := range []string{"host:1", what, word + " and so on"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("want %q in: %v", want, err)
			}
		}
	}
	for _, err := range []error{serverError("ERR max number of clients reached"), serverError("ERR other"), net.ErrClosed} {
		if got := explain("host:1", err); !strings.Contains(got.Error(), "host:1") || !errors.Is(got, err) {
			t.Error(got)
		}
	}
	for _, err := range []error{
		syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ETIMEDOUT,
		&net.DNSError{Err: "no such host", Name: "host"},
	} {
		if got := explain("host:1", err); !strings.HasSuffix(got.Error(), ": start a server there, or correct its address") ||
			!errors.Is(got, err) {
			t.Error(got)
		}
	}
	if _, ok := refusal(redis.Nil); ok {
		t.Error("a missing key is a refusal")
	}
}
