package router_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// Frames are acknowledged in groups of 256, so that their sender keeps at most that many for a peer that sends
// no frames itself.
func TestFramesAreAcknowledgedInRuns(t *testing.T) {
	for _, tt := range []struct{ messages, bytes, most int }{{300, 1, 50}, {20, 30 << 10, 10}} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, nil)
			defer j.close()
			out, _ := j.channels(router.Spec{Name: "e"})
			j.start()
			synctest.Wait()
			for range tt.messages {
				if _, err := out[0].Send(t.Context(), make(router.Bytes, tt.bytes), nil); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			_ = j.nodes[1].Abandon()
			<-time.After(20 * time.Second)
			gone, ok := errors.AsType[*router.PeerError](j.nodes[0].Losses())
			if ok && gone.Undelivered > tt.most {
				t.Errorf("of %d messages of %d bytes: %v, want at most %d not acknowledged", tt.messages, tt.bytes, gone, tt.most)
			}
		})
	}
}

// The end of a sender is acknowledged at once, and not with the next heartbeat.
func TestFinIsAcknowledgedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		j.start()
		<-time.After(1500 * time.Millisecond)
		began := time.Now()
		if err := j.nodes[0].Drain(t.Context(), false); err != nil {
			t.Error(err)
		}
		if after := time.Since(began); after > 0 { // of virtual time
			t.Errorf("drained after %v", after)
		}
	})
}
