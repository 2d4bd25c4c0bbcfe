package slurm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/internal/cli/call"
)

func TestJobsAsScontrolShowsThem(t *testing.T) {
	// Lines of Slurm 22.05.8, with some fields left out.
	const out = `JobId=37 JobName=req.sh UserId=root(0) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=1 ExitCode=0:0 RunTime=00:00:03 StdIn=/dev/null StdOut=/tmp/a b/req.out Power= 
JobId=9 ArrayJobId=9 ArrayTaskId=2 JobName=arr.sh JobState=FAILED Reason=NonZeroExitCode ExitCode=75:0 DerivedExitCode=0:0 StdOut=/tmp/arr.9_2
JobId=40 ArrayJobId=9 ArrayTaskId=3-4 JobName=arr.sh JobState=PENDING Reason=Resources ExitCode=0:0
JobId=41 JobState=CANCELLED Reason=None ExitCode=0:15 StdOut=/dev/null
garbage
`
	want := []jobState{
		{id: "37", state: "RUNNING", reason: "None", output: "/tmp/a b/req.out"},
		{id: "9_2", state: "FAILED", reason: "NonZeroExitCode", code: 75, output: "/tmp/arr.9_2"},
		{id: "9_3-4", state: "PENDING", reason: "Resources"},
		{id: "41", state: "CANCELLED", reason: "None", code: 143, output: "/dev/null"},
	}
	if d := cmp.Diff(want, parseJobs(out), cmp.AllowUnexported(jobState{})); d != "" {
		t.Error(d)
	}
	for state, code := range map[string]int{"COMPLETED": 0, "TIMEOUT": call.ExitFailure, "NODE_FAIL": call.ExitFailure} {
		if s := (jobState{state: state}); !s.over() || s.exitCode() != code {
			t.Errorf("%s: over %v, exit code %d", state, s.over(), s.exitCode())
		}
	}
}
