// Package freeport gives tests tcp ports that no other process takes in the meantime.
//
//	port := freeport.Get(t, 1)
//
// Another process can take a port that a test found by listening on port 0: by an
// outgoing connection, which gets a port of the same range, or by listening on port 0
// itself. The ports of this package are below that range. They come in blocks; a
// process owns a block as long as it listens on the block's first port.
package freeport

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The blocks begin at port 10000 and end before 20000, where the ports begin that
// ditask itself works out under Slurm.
const (
	firstBlock = 10000
	blockPorts = 100
	blocks     = 100
)

// block is what this process has of the ports: a listener on the first one, which
// makes the others its own.
type block struct {
	lock  net.Listener
	taken [blockPorts]bool
	next  int // where to look first, so that a port is not used again at once
}

var (
	mu   sync.Mutex
	mine = map[int]*block{} // by their first port
)

// Get returns the first of n ports in a row. They are t's until it ends.
func Get(t testing.TB, n int) int {
	t.Helper()
	first, give, err := Take(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(give)
	return first
}

// Take returns the first of n ports in a row, at most 99, and how to give them back.
func Take(n int) (first int, give func(), err error) {
	if n < 1 || n >= blockPorts {
		return 0, nil, fmt.Errorf("freeport: %d ports are asked for: want 1 to %d", n, blockPorts-1)
	}
	mu.Lock()
	defer mu.Unlock()
	for base, b := range mine {
		if k, ok := b.row(base, n); ok {
			return base + k, func() { b.give(k, n) }, nil
		}
	}
	for i := range blocks {
		base := firstBlock + i*blockPorts
		if mine[base] != nil {
			continue
		}
		lock, err := net.Listen("tcp", address("127.0.0.1", base)) //nolint:noctx // it ends at once
		if err != nil {
			continue
		}
		b := &block{lock: lock, next: 1}
		if k, ok := b.row(base, n); ok {
			mine[base] = b
			return base + k, func() { b.give(k, n) }, nil
		}
		_ = lock.Close()
	}
	return 0, nil, fmt.Errorf("freeport: no %d free ports in a row from %d to %d", n, firstBlock, firstBlock+blocks*blockPorts-1)
}

// row takes n ports in a row of the block at base.
func (b *block) row(base, n int) (first int, ok bool) {
	for _, from := range []int{b.next, 1} {
		run := 0
		for k := from; k < blockPorts; k++ {
			run++
			if b.taken[k] || !free(base+k) {
				run = 0
			}
			if run == n {
				first = k - n + 1
				for i := first; i <= k; i++ {
					b.taken[i] = true
				}
				b.next = k + 1
				return first, true
			}
		}
	}
	return 0, false
}

func (b *block) give(first, n int) {
	mu.Lock()
	defer mu.Unlock()
	clear(b.taken[first : first+n])
}

// free reports whether no process listens on the port, on any address.
func free(port int) bool {
	l, err := net.Listen("tcp", address("", port)) //nolint:noctx // it ends at once
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
