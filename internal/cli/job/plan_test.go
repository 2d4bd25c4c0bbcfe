package job

import (
	"errors"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/parallel/placement"
)

func TestWritePlan(t *testing.T) {
	with(t)
	meet := placement.Site{
		Rank: 1, Launchers: []placement.Launcher{{Host: "a"}, {Host: "b"}, {}}, Rendezvous: &placement.Rendezvous{Host: "a"},
	}
	site := placement.Site{Rank: 1, Open: true, Launchers: []placement.Launcher{{}, {Slot: 1}}}
	for _, c := range []struct {
		line string
		site placement.Site
		want []string
	}{
		{"", placement.Site{}, []string{
			"job j: 1 node, topology mesh, over unix sockets",
			"NODE  LAUNCHER  LOCAL  HOST   LISTEN             DIALS  LABELS",
			"0     0 (this)  0      local  unix:///r/n0.sock  -      -"}},
		{"-n 2 --protocol tcp --labels b,a --topology alone --attach-to tcp://h:1,$node.0 --node-ids 1,0", placement.Site{}, nil},
		{"-n 2 --protocol tcp --labels b,a --topology alone --attach-to tcp://h:1", placement.Site{}, []string{
			"job j: an unknown number of nodes, topology alone, over tcp",
			"NODE  LAUNCHER  LOCAL  HOST   LISTEN                  DIALS      LABELS",
			"0     0 (this)  0      local  tcp://127.0.0.1:(free)  tcp://h:1  a,b",
			"1     0 (this)  1      local  tcp://127.0.0.1:(free)  tcp://h:1  a,b"}},
		{"", meet, []string{
			"job j: 3 nodes, topology mesh, over tcp",
			"NODE  LAUNCHER  LOCAL  HOST  LISTEN                DIALS  LABELS",
			"0     0         0      a     tcp://a:50515         -      -",
			"1     1 (this)  0      b     tcp://0.0.0.0:(free)  0      -",
			"2     2         0      -     -                     0      -"}},
		{"--topology alone", site, []string{
			"job j: an unknown number of nodes, topology alone, over tcp",
			"NODE  LAUNCHER  LOCAL  HOST   LISTEN                 DIALS  LABELS",
			"0     0         0      local  tcp://127.0.0.1:50515  -      -",
			"1     1 (this)  0      local  tcp://127.0.0.1:50516  -      -"}},
		{"-n 2 --redis-url redis://u:p@r:1 --topology star", placement.Site{}, []string{
			"job j: 2 nodes, topology star, over Redis",
			"bus redis://r:1: an external server",
			"NODE  LAUNCHER  LOCAL  HOST   LISTEN        DIALS  LABELS",
			"0     0 (this)  0      local  bus://node.0  -      -",
			"1     0 (this)  1      local  bus://node.1  0      -"}},
	} {
		plan, err := planOf(fields(t, c.line), c.site, "j", "/r")
		if c.want == nil {
			expect(t, err, "--attach-to $node.0: node 0 would dial itself")
			continue
		}
		var out strings.Builder
		if err := errors.Join(err, writePlan(&out, plan)); err != nil || out.String() != strings.Join(c.want, "\n")+"\n" {
			t.Errorf("%s: %v\n%s", c.line, err, out.String())
		}
	}
	if got := sockets(placement.Plan{Transport: placement.TransportNATS}); got != "NATS" {
		t.Error(got)
	}
}

func TestPlanCommand(t *testing.T) {
	with(t)
	for line, want := range map[string]string{
		"--job-id j":                          "job j: 1 node, topology mesh, over unix sockets\n",
		"--job-id j --json":                   "{\n  \"job\": \"j\",",
		"--join-timeout 1m":                   "--join-timeout: has no effect, as the job has one node: leave it out",
		"--platform slurm":                    "SLURM_JOB_ID is not set",
		"--job-id a/b":                        "--job-id: job id",
		"--topology ring":                     "--topology \"ring\"",
		"extra":                               "plan: unknown argument \"extra\": see",
		"--job-id j --seed 1 --":              "job j: 1 node",
		"--job-id j --local_rank 1 --ports 7": "job j: an unknown number of nodes, topology mesh, over tcp\n",
	} {
		var out strings.Builder
		app := &urfave.App{Writer: &out, ErrWriter: &out, ExitErrHandler: func(*urfave.Context, error) {},
			Commands: []*urfave.Command{PlanCommand(&call.Call{Stdout: &out})}}
		err := app.Run(append([]string{"ditask", "plan"}, strings.Fields(line)...))
		got := out.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

func TestAssignJoinsAllFaults(t *testing.T) {
	with(t)
	_, err := assign(fields(t, "--grace 0s --job-id a/b --topology ring --metrics-port x"))
	expect(t, err, strings.Join([]string{
		"--grace 0s: want more than 0s",
		`--job-id: job id "a/b": want 1 to 40 letters, digits, dots, underscores and hyphens, the first a letter or digit`,
		`--topology "ring": want one of mesh, star, alone`,
		`--metrics-port "x": want a port, 0 for a free one, or ADDRESS:PORT`,
	}, "\n"))
	_, err = assign(fields(t, "--startup-interval 1 --attach-to tcp://h:1"))
	expect(t, err, "--startup-interval: has no effect, as this launcher starts one node: leave it out\n"+
		"nodes that join those of another launcher need --job-id and --token (or --token-file), the same for all")
	a, err := assign(fields(t, "--job-id j --metrics-port 0 -n 2"))
	if err != nil || a.job != "j" || a.metrics != "127.0.0.1:0" || len(a.plan.Nodes) != 2 || a.plan.Job != "j" ||
		a.cfg.Env.Token == "" || !strings.HasPrefix(a.plan.Nodes[0].Listen, "unix://") {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestCautionsAreThoseOfTheFirstLauncher(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"SLURM_JOB_ID=7", "SLURM_NTASKS=4"},
			"ditask: this is job 7 of Slurm, outside of its 4 tasks, so the nodes run alone on this host: srun ditask ... runs them in the tasks\n"},
		{[]string{"DI_NODES=a,b", "DI_RANK=0", "DITASK_TOKEN=0123456789abcdef"},
			"ditask: tcp://0.0.0.0:50515 is on the network without TLS: " +
				"anybody on the network path can read and change what the nodes send: see ditask tls\n"},
		{[]string{"DI_NODES=a,b", "DI_RANK=1", "DITASK_TOKEN=0123456789abcdef"}, ""},
	} {
		with(t, c.env...)
		a, err := assign(args(t))
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		command{&call.Call{Stderr: &stderr}, nil}.caution(a)
		if stderr.String() != c.want {
			t.Errorf("%v: %q, want %q", c.env, stderr.String(), c.want)
		}
	}
}

func TestRunDirIsForUnixSockets(t *testing.T) {
	with(t)
	for line, want := range map[string]bool{"": true, "-n 3": true, "--protocol tcp": false, "--mq-type nats": false} {
		plan, err := planOf(fields(t, line), placement.Site{}, "j", "/r")
		if err != nil || needsRunDir(plan) != want {
			t.Errorf("%s: %v, %v", line, needsRunDir(plan), err)
		}
	}
}
