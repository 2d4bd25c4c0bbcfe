package parallel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

func TestAnErrorNamesTheNodeThatItComesFrom(t *testing.T) {
	remote := &task.RemoteError{Node: 1, Reason: "out of luck"}
	lost := fmt.Errorf("close: %w", &router.PeerError{Node: 2, Undelivered: 3, Err: router.ErrLost})
	refused := fmt.Errorf("bus: %w", &router.RefusedError{Code: router.RefuseLost})
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 7}, {errors.New("own"), 7}, {remote, 1}, {lost, 2}, {errors.Join(remote, lost), 1},
		{refused, 7}, {errors.Join(lost, refused), 7},
	} {
		if got := cause(c.err, 7); got != c.want {
			t.Errorf("%v: node %d, want %d", c.err, got, c.want)
		}
	}
}
