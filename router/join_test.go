package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// Nodes that start together wait for all of them: two connected nodes are not a running job.
func TestStartWaitsForTheLastNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		started := make(chan error, 3) // one result for each node
		start := func(id int) { started <- j.nodes[id].Start(t.Context(), nil) }
		go start(0)
		go start(1)
		<-time.After(10 * time.Second)
		if n := len(started); n != 0 {
			t.Errorf("%d nodes have started without the last one", n)
		}
		go start(2)
		for range j.nodes {
			if err := <-started; err != nil {
				t.Error(err)
			}
		}
	})
}

// A second Listen(true) changes nothing: what is under way is received.
func TestListenTwiceIsListenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		j.start()
		release := j.gates.hold(0, 1)
		for i := range 3 {
			if _, err := out[0].Send(t.Context(), router.Bytes(fmt.Sprint(i)), nil); err != nil {
				t.Error(err)
			}
		}
		out[1].Listen(true)
		release()
		synctest.Wait()
		if got := in[1].all(); got != "0 1 2" {
			t.Errorf("received %q, want 0 1 2", got)
		}
	})
}

// Start fails with the address that it cannot listen on.
func TestStartNamesTheAddressThatIsTaken(t *testing.T) {
	j := newJob(t, 2, nil)
	defer j.close()
	l, err := j.gates.hosts.Listen(t.Context(), "mem://0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := j.nodes[0].Start(t.Context(), nil); err == nil || !strings.HasPrefix(err.Error(), "listen on mem://0: ") {
		t.Error(err)
	}
}

// The error does not name an address that was reached in the end.
func TestStartDoesNotNameReachedAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		failed := make(chan error, 2) // one result for each node
		go func() { failed <- j.nodes[1].Start(t.Context(), nil) }()
		<-time.After(time.Second)
		go func() { failed <- j.nodes[0].Start(t.Context(), nil) }()
		for range 2 {
			if err := <-failed; err == nil || err.Error() != "waited for node.2: the join timeout has passed" {
				t.Error(err)
			}
		}
	})
}
