package router_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// A process that has the token sends the farewell of a running node. No node loses that node. When
// it has really ended, its farewell is received as quickly as any other.
func TestR7AForgedFarewellLosesNoNode(t *testing.T) {
	for _, topology := range []router.Topology{router.Mesh, router.Star} {
		for _, ahead := range []uint64{0, uint64(time.Hour)} {
			t.Run(fmt.Sprint(topology, " ", ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJob(t, 4, func(c *router.Config) {
						if c.Topology = topology; topology == router.Star {
							c.Attach = c.Attach[:min(len(c.Attach), 1)]
						}
					})
					defer j.close()
					lost := j.losses(2)
					j.start()
					synctest.Wait()
					forged := j.farewell(2)
					forged.Listen, forged.Attach, forged.Incarnation = "", []string{"mem://0"}, 1+ahead
					if err := router.SendFarewell(t.Context(), forged, "killed", true); err != nil {
						t.Error(err)
					}
					<-time.After(10 * time.Second)
					j.together(0, 1, 2, 3)
					if n := strings.Count(j.log.String(), "a node announced the end of another one, which answers"); n != 3 {
						t.Errorf("%d nodes log it:\n%s", n, j.log.String())
					}
					_ = j.nodes[2].Abandon()
					began := time.Now()
					if err := router.SendFarewell(t.Context(), j.farewell(2), "exit code 3", false); err != nil {
						t.Error(err)
					}
					for id, c := range lost {
						if err := <-c; !errors.Is(err, router.ErrLost) || failed(err) || !strings.Contains(err.Error(), "exit code 3") {
							t.Errorf("node.%d: %v", id, err)
						}
					}
					after(t, began, time.Second)
				})
			})
		}
	}
}

// A node whose clock is far ahead is refused with that reason.
func TestNodeWithAClockAheadDoesNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		j.make(1, uint64(time.Now().Add(48*time.Hour).UnixNano()))
		ends := make(chan error, 1) // one result
		go func() { ends <- j.nodes[1].Start(t.Context(), nil) }()
		go func() { _ = j.nodes[0].Start(t.Context(), nil) }()
		if err := <-ends; err == nil || !strings.Contains(err.Error(),
			"refused (clock): node.1 was started more than 24h0m0s ahead of the clock of node.0: set the clocks of their hosts") {
			t.Error(err)
		}
		_ = j.nodes[1].Abandon()
		j.make(1, uint64(time.Now().Add(time.Hour).UnixNano()))
		j.start(1)
	})
}

// An unauthenticated client that reads a node's proof and closes the connection is counted and logged.
func TestR7UnauthenticatedClientsThatOnlyReadTheProof(t *testing.T) {
	r, network, log := victim(t, nil)
	body, err := json.Marshal(map[string]any{
		"protocol": router.Protocol, "job": "j", "node": 3, "incarnation": "1", "nonce": []byte("nonce"), "purpose": "join",
		"limits": map[string]int{"window_messages": 16384, "window_bytes": 8 << 20, "chunk_bytes": 256 << 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		c := dial(t, network)
		_, _ = c.Write(append(binary.LittleEndian.AppendUint32([]byte("ditask\x00\x01"), uint32(len(body))), body...))
		var n [4]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, binary.LittleEndian.Uint32(n[:]))
		if _, err := io.ReadFull(c, said); err != nil || !strings.Contains(string(said), `"proof":`) {
			t.Fatalf("%s, %v", said, err)
		}
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		gone(c) // when it has been counted
	}
	if got := r.Refused(); got["no proof"] != 5 || len(got) != 1 {
		t.Errorf("refused: %v", got)
	}
	if n := strings.Count(log.String(), `reason="no proof"`); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// Nodes that call each other at the same time give their proofs, also on connections that they do not
// need.
func TestNodesThatCallEachOtherGiveTheirProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, func(c *router.Config) {
			c.Attach = nil
			for id := range 4 {
				if id != c.Node {
					c.Attach = append(c.Attach, fmt.Sprint("mem://", id))
				}
			}
		})
		defer j.close()
		j.start()
		<-time.After(10 * time.Second)
		j.together(0, 1, 2, 3)
		for id, r := range j.nodes {
			if n := r.Refused()["no proof"]; n > 0 {
				t.Errorf("node.%d counts %d nodes as unauthenticated", id, n)
			}
		}
	})
}
