package k8s

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/logtest"
)

// hostilePod returns a pod of which every text that others than the user can set is hostile: the
// last output of its program, its conditions and its names.
func hostilePod(t *testing.T, status string) kubePod {
	t.Helper()
	bad, err := json.Marshal(logtest.Hostile)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(`{"metadata":{"name":BAD,"labels":{"ditask.dev/type":BAD}},
		"spec":{"nodeName":BAD,"hostname":BAD,"containers":[{"name":"node"}]},"status":{"phase":BAD,`+status+`}}`, "BAD", string(bad))
	var p kubePod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Texts of Kubernetes about a job and its pods are printed escaped, and each row is one line.
func TestPrintedTextOfPods(t *testing.T) {
	for name, status := range map[string]string{
		"last words":  `"containerStatuses":[{"name":"node","state":{"terminated":{"exitCode":1,"reason":BAD,"message":BAD}}}]`,
		"condition":   `"conditions":[{"type":"PodScheduled","status":"False","reason":BAD,"message":BAD}]`,
		"waiting":     `"containerStatuses":[{"name":"node","state":{"waiting":{"reason":BAD,"message":BAD}}}]`,
		"pod message": `"reason":BAD,"message":BAD`,
	} {
		t.Run(name, func(t *testing.T) {
			p := hostilePod(t, status)
			var job kubeJob
			job.Kind, job.Metadata.Name, job.Metadata.Namespace = "Job", logtest.Hostile, logtest.Hostile
			job.Status.Conditions = []kubeCondition{{Type: "Failed", Status: "True", Message: logtest.Hostile}}
			p.Status.Phase += "x"
			s := statusOf(&job, []kubePod{p})
			s.failed(&p)
			var stdout, stderr bytes.Buffer
			if err := s.write(&stdout, time.Now()); err != nil {
				t.Fatal(err)
			}
			_, rows, _ := strings.Cut(stdout.String(), "RANK")
			if strings.Count(rows, "\n") != 2 {
				t.Errorf("%q", rows)
			}
			c := &call.Call{Stdout: &stdout, Stderr: &stderr}
			f := &podFollower{c: c, said: map[string]string{}}
			f.logStatus(s)
			s.State = statePending
			f.logStatus(s)
			c.Exit(errors.New(job.String()))
			if err := c.WriteJSON(s); err != nil {
				t.Fatal(err)
			}
			for _, got := range []string{stdout.String(), stderr.String()} {
				if faults := logtest.Faults(got); faults != "" || !strings.Contains(got, `\u009b2J`) {
					t.Errorf("%s: %s", faults, got)
				}
			}
		})
	}
}

// Errors of kubectl quote the API server and its users.
func TestPrintedTextOfKubectl(t *testing.T) {
	var stderr bytes.Buffer
	c := &call.Call{Stderr: &stderr}
	c.Exit(&kubectlError{"submit x", logtest.Hostile, errors.New("exit status 1")})
	for _, line := range spoken(logtest.Hostile) {
		c.Warn("text", line)
	}
	if got := stderr.String(); logtest.Faults(got) != "" || strings.Count(got, `\u009b2J`) != 2 {
		t.Errorf("%s: %q", logtest.Faults(got), got)
	}
}
