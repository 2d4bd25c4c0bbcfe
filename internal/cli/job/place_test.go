package job

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/slurm"
)

// task are the variables of task 2 of 4 on two hosts, requeued twice.
var task = []string{
	"SLURM_JOB_ID=123", "SLURM_STEP_ID=1", "SLURM_RESTART_COUNT=2", "SLURM_PROCID=2", "SLURM_LOCALID=0", "SLURM_NODEID=1",
	"SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_GTIDS=2,3",
}

func TestPlaceOf(t *testing.T) {
	torch := []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}
	pod := []string{"DI_NODES=a,b", "DI_RANK=1"}
	const several = "--local_rank 3"
	for _, c := range []struct {
		name, line string
		env        []string
		launchers  int
		rank       int
		step, pod  bool
		slot       int
		open       bool
	}{
		{name: "alone", launchers: 1},
		{name: "task", env: task, launchers: 4, rank: 2, step: true},
		{name: "task by name", env: task, line: "--platform slurm", launchers: 4, rank: 2, step: true},
		{name: "task, not asked", env: task, line: "--platform local", launchers: 1},
		{name: "pod", env: pod, launchers: 2, rank: 1, pod: true},
		{name: "pod by name", env: pod, line: "--platform k8s", launchers: 2, rank: 1, pod: true},
		{name: "pod, not asked", env: pod, line: "--platform local", launchers: 1},
		{name: "a task wins over a pod", env: append(pod, task...), launchers: 4, rank: 2, step: true},
		{name: "a pod in a task", env: append(pod, task...), line: "--platform kubernetes", launchers: 2, rank: 1, pod: true},
		{name: "several on a host", line: several, launchers: 4, rank: 3, slot: 3, open: true},
		{name: "several on a host, in a pod", line: several, env: pod, launchers: 4, rank: 3, slot: 3, open: true},
		{name: "torchrun", env: torch, launchers: 2, rank: 1, pod: true},
		{name: "torchrun with a flag", env: torch, line: "--local_rank 1", launchers: 2, rank: 1, pod: true, slot: 1},
		{name: "torchrun with both", env: append(torch, "LOCAL_RANK=1"), line: "--local-rank 1", launchers: 2, rank: 1, pod: true, slot: 1},
		{name: "torchrun, not asked", env: torch, line: "--platform local --local_rank 1", launchers: 2, rank: 1, slot: 1, open: true},
		{name: "torchrun in a task", env: append(torch, task...), line: "--local_rank 1", launchers: 2, rank: 1, slot: 1, open: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			with(t, c.env...)
			p, err := placeOf(fields(t, c.line))
			if err != nil {
				t.Fatal(err)
			}
			launchers, slot := max(len(p.site.Launchers), 1), 0
			if p.site.Launchers != nil {
				slot = p.site.Launchers[p.site.Rank].Slot
			}
			if launchers != c.launchers || p.site.Rank != c.rank || (p.step != nil) != c.step || (p.pod != nil) != c.pod ||
				p.site.Open != c.open || slot != c.slot {
				t.Errorf("%+v", p)
			}
			if first := c.rank == 0 || c.open; p.first() != first {
				t.Errorf("first: %v", p.first())
			}
			if want := map[bool]int{true: 1, false: c.launchers}[c.open]; p.launchers() != want {
				t.Errorf("%d launchers", p.launchers())
			}
			if c.step && (p.restarts != 2 || p.slurm != slurm.Task) {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestPlaceFaults(t *testing.T) {
	torch := []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "LOCAL_RANK=1"}
	for _, c := range []struct {
		line string
		env  []string
		want string
	}{
		{"--local_rank 0", torch, "--local_rank 0: want the number that LOCAL_RANK=1 gives, or leave --local_rank out"},
		{"--local_rank -1", torch[:3], "--local_rank -1: want the number that LOCAL_RANK= gives, or leave --local_rank out"},
		{"--local_rank 1024", torch[:3], "--local_rank 1024: want the number that LOCAL_RANK= gives, or leave --local_rank out"},
		{"--platform slurm", nil, "SLURM_JOB_ID is not set: srun sets it for each task"},
		{"--platform kubernetes", nil, "DI_NODES is not set"},
		{"", []string{"DI_NODES=a", "DI_RANK=1"}, "DI_RANK=\"1\": want a number from 0 to 0"},
		{"", []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0"}, "SLURM_STEP_NUM_TASKS is not set"},
	} {
		with(t, c.env...)
		_, err := placeOf(fields(t, c.line))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.line, err, c.want)
			continue
		}
		expect(t, err, err.Error()) // that it is a usage error
	}
}

func TestCheckPlatform(t *testing.T) {
	for line, want := range map[string]string{
		"":                                   "",
		"--platform local":                   "",
		"--platform k8s":                     "",
		"--platform moon":                    `--platform "moon": want local, slurm or kubernetes`,
		"--local_rank 0":                     "",
		"--local_rank 1023 --platform local": "",
		"--local_rank 1024":                  "--local_rank 1024: want a number from 0 to 1023",
		"--local_rank -1":                    "--local_rank -1: want a number from 0 to 1023",
		"--local_rank 0 --platform slurm":    "--local_rank: Slurm gives each task its number: leave --local_rank out with --platform slurm",
		"--local_rank 0 --platform kubernetes": "" +
			"--local_rank: the variables of a pod give its number: leave --local_rank out with --platform kubernetes",
	} {
		with(t)
		got := ""
		if err := checkPlatform(fields(t, line)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	with(t, "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a")
	if err := checkPlatform(fields(t, "--local_rank 0 --platform kubernetes")); err != nil {
		t.Error(err)
	}
}

func TestHintsForSurprisingPlacements(t *testing.T) {
	batch := []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=4"}
	for _, c := range []struct {
		line string
		env  []string
		want string
	}{
		{"", batch, "this is job 7 of Slurm, outside of its 4 tasks, so the nodes run alone on this host: srun ditask ... runs them in the " +
			"tasks"},
		{"--platform local", batch, ""},
		{"", []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=1"}, ""},
		{"", []string{"SLURM_JOB_ID=7"}, ""},
		{"", []string{"JOB_COMPLETION_INDEX=1"},
			"this is pod 1 of an Indexed Job, and DI_NODES does not name the other pods, so its nodes run alone: " +
				"set DI_NODES to all pods, such as dqn-[0-3].dqn, or give --platform local"},
		{"", append(batch, "JOB_COMPLETION_INDEX=1"),
			"this is job 7 of Slurm, outside of its 4 tasks, so the nodes run alone on this host: srun ditask ... runs them in the tasks"},
	} {
		with(t, c.env...)
		p, err := placeOf(fields(t, c.line))
		if err != nil || p.hint != c.want {
			t.Errorf("%q %v: %q, %v", c.line, c.env, p.hint, err)
		}
	}
}

func TestSameHostCountsEarlierLaunchers(t *testing.T) {
	s := sameHost(2)
	if len(s.Launchers) != 3 || s.Rank != 2 || !s.Open || s.Launchers[2].Slot != 2 || s.Launchers[0].Slot != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAdviceAboutKeysThatDiffer(t *testing.T) {
	refused := launch.Result{First: &launch.Failure{Error: "node 3 refused (token): bad proof"}}
	if got := (place{keyed: true}).advice(refused); !strings.Contains(got,
		"as without a shared home folder: set DITASK_TOKEN to a random text before srun") {
		t.Error(got)
	}
	for _, p := range []struct {
		at place
		r  launch.Result
	}{{place{}, refused}, {place{keyed: true}, launch.Result{}}, {place{keyed: true},
		launch.Result{First: &launch.Failure{Error: "refused (job)"}}}} {
		if got := p.at.advice(p.r); got != "" {
			t.Errorf("%+v: %s", p, got)
		}
	}
}

func TestOnlyTheFirstLauncherReportsTheJob(t *testing.T) {
	for _, c := range []struct {
		p    place
		want bool
	}{
		{place{}, true},
		{place{step: &slurm.Step{ProcID: 0}}, true}, {place{step: &slurm.Step{ProcID: 1}}, false},
		{place{pod: &kube.Pod{Rank: 0}}, true}, {place{pod: &kube.Pod{Rank: 1}}, false},
	} {
		if c.p.first() != c.want {
			t.Errorf("%+v", c.p)
		}
	}
}

func TestOwnAddressIsNoLoopback(t *testing.T) {
	got, err := ownAddress()
	if ip := net.ParseIP(got); err == nil && (ip == nil || ip.IsLoopback()) || err != nil && err.Error() != "only loopback" {
		t.Errorf("%s, %v", got, err)
	}
}

// scontrol puts a program of that name first into PATH, which prints text.
func scontrol(t *testing.T, text string, code string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho '" + text + "'\nexit " + code + "\n"
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestHostAddress(t *testing.T) {
	for _, name := range []string{"", "10.1.2.3", "::1", "localhost"} {
		if got, err := hostAddress(t.Context(), name); got != name || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	scontrol(t, "NodeName=n1 NodeAddr=127.0.0.9 NodeHostName=n1", "0")
	if got, err := hostAddress(t.Context(), "n1.invalid"); got != "127.0.0.9" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		"NodeName=n1":                    "scontrol show node n1.invalid does not print its address either: give the host a name that resolves",
		"NodeName=n1 NodeAddr=m.invalid": "its NodeAddr m.invalid does not resolve either",
	} {
		scontrol(t, text, "0")
		if _, err := hostAddress(t.Context(), "n1.invalid"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	scontrol(t, "", "1")
	if _, err := hostAddress(t.Context(), "n1.invalid"); err == nil || !strings.Contains(err.Error(),
		"does not print its address either (exit status 1)") {
		t.Error(err)
	}
}

func TestLocatedReplacesNamesThatDoNotResolve(t *testing.T) {
	env := append([]string{}, task...)
	with(t, append(env, "SLURM_STEP_NODELIST=n1.invalid,n2.invalid")...)
	scontrol(t, "NodeAddr=127.0.0.9", "0")
	before, err := placeOf(args(t))
	if err != nil {
		t.Fatal(err)
	}
	after, err := before.located(t.Context())
	const found = "127.0.0.9"
	if l := after.site.Launchers; err != nil || after.site.Rendezvous.Host != found ||
		l[0].Host != found || l[1].Host != "" || l[2].Host != found {
		t.Errorf("%+v, %v", after.site, err)
	}
	if before.site.Rendezvous.Host != "n1.invalid" || before.site.Launchers[2].Host != "n2.invalid" {
		t.Errorf("the place before has changed: %+v", before.site)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := before.located(cancelled); err == nil || !strings.HasPrefix(err.Error(),
		`SLURM_STEP_NODELIST="n1.invalid,n2.invalid": host n1.invalid: `) {
		t.Error(err)
	}
	alone := place{}
	if got, err := alone.located(cancelled); err != nil || got.site.Rendezvous != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
