package launch

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
)

// Of the processes with a variable, those that lead their groups are found.
func TestLeadersAreFoundByTheirEnvironment(t *testing.T) {
	mark := "DITASK_TEST_LEADER=" + filepath.Base(t.TempDir()) + t.Name()
	leader, member, other := ownGroup(t, true, mark), ownGroup(t, false, mark), ownGroup(t, true, mark+"x")
	var got []int
	leak.Await(func() []string { // the environment of a process is empty in the middle of its exec
		if got = leadersWith(mark); len(got) == 0 {
			return []string{"no leader"}
		}
		return nil
	}, 10*time.Second)
	if !slices.Equal(got, []int{leader.Process.Pid}) {
		t.Errorf("found %v, want %d; %d is no leader, and %d has another value", got, leader.Process.Pid, member.Process.Pid, other.Process.Pid)
	}
}
