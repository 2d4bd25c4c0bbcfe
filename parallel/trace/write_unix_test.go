//go:build unix

package trace

import (
	"os"
	"syscall"
	"testing"
)

// TestRecordIsOneWrite, with a payload below 64 KiB: a node that is killed leaves no part of it. A socket
// of datagrams keeps the writes apart.
func TestRecordIsOneWrite(t *testing.T) {
	r, _ := create(t, 0)
	_ = r.file.Close()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.file = os.NewFile(uintptr(pair[0]), "datagrams")
	defer func() { _ = syscall.Close(pair[1]) }()
	buf := make([]byte, 1<<17)
	for _, n := range []int{0, 1, 1000} {
		before := r.size
		r.Received("e", 1, 1, []byte("h"), make([]byte, n))
		if got, err := syscall.Read(pair[1], buf); err != nil || int64(got) != r.size-before || got != headBytes+receivedHead+1+n {
			t.Errorf("a payload of %d bytes: the first write has %d of %d: %v", n, got, r.size-before, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
