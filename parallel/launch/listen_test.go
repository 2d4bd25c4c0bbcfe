package launch

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ditask/ditask/internal/leak"
)

// A socket accepts calls until it is closed, also in other processes that have its address.
func TestAClosedSocketRefusesCalls(t *testing.T) {
	path := filepath.Join(leak.Check(t).Dir, "s", "s")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil { // it is removed with its last socket
		t.Fatal(err)
	}
	for _, addr := range []string{"tcp://127.0.0.1:0", "unix://" + path} {
		s, port, err := bind(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		network, address := "unix", path
		if port != 0 {
			network, address = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		for _, open := range []bool{true, false} {
			c, err := net.Dial(network, address)
			if (err == nil) != open {
				t.Errorf("%s, open %v: %v", addr, open, err)
			}
			if err == nil {
				_ = c.Close()
			}
			if open {
				s.close()
			}
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: its file is left", addr)
		}
	}
}

// An error of listening has its cause, without the operation, and the remedy.
func TestAdviceOnErrorsOfListening(t *testing.T) {
	wrapped := func(err error) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", err)}
	}
	plain := errors.New("no luck")
	for want, err := range map[string]error{
		": choose other --ports, or end the process that has it": wrapped(syscall.EADDRINUSE),
		": choose a port or a folder that you may use":           wrapped(syscall.EACCES),
		": --address is not one of this machine":                 wrapped(syscall.EADDRNOTAVAIL),
		": the folder of the socket is missing":                  wrapped(syscall.ENOENT),
		"no luck":                                                &net.OpError{Op: "listen", Err: plain},
	} {
		got := Advise(err)
		if got == nil || !strings.HasSuffix(got.Error(), want) || strings.Contains(got.Error(), "listen") ||
			strings.Contains(got.Error(), "bind") {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
	if got := Advise(wrapped(syscall.EPERM)); !errors.Is(got, syscall.EPERM) || !strings.Contains(got.Error(), "that you may use") {
		t.Errorf("%v", got)
	}
}
