package router

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// A node that was called twice may leave in order between the two calls: the
// second one is too late, which is not a fault. A call to a lost node is a fault.
func TestCallToANodeThatLeftIsNoFault(t *testing.T) {
	r := openRouter(t, Config{Node: 3})
	r.was = map[int]former{
		0: {incarnation: 7, ready: true, err: fmt.Errorf("%w: the node has ended", errLeft)},
		1: {incarnation: 7, ready: true, err: errors.New("silent")},
	}
	for node, code := range map[int]string{0: RefuseClosed, 1: RefuseLost} {
		if s, no := r.find(hello{Node: node, Incarnation: 7}); s != nil || no == nil || no.Code != code {
			t.Errorf("node.%d: %v, %+v, want %s", node, s, no, code)
		}
		if s, no := r.find(hello{Node: node, Incarnation: 8}); s != nil || no != nil {
			t.Errorf("node.%d, started again: %v, %+v", node, s, no)
		}
		if s, no := r.find(hello{Node: node, Incarnation: 6}); s != nil || no == nil || no.Code != RefuseStale {
			t.Errorf("node.%d, an older incarnation than the one that is gone: %v, %+v, want %s", node, s, no, RefuseStale)
		}
	}
}

// A node of an older version, which does not know that nodes leave, is not waited for.
func TestLeaveDoesNotWaitForAnOlderVersion(t *testing.T) {
	r := openRouter(t, Config{Node: 1})
	r.started.Store(true)
	if _, err := r.admit(hello{Node: 2, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Leave(ctx); err != nil {
		t.Error(err)
	}
}
