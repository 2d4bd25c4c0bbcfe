package kube_test

import (
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/kube"
)

func TestHostsHaveBounds(t *testing.T) {
	label := strings.Repeat("x", 63)
	name := strings.Join([]string{label, label, label, strings.Repeat("y", 61)}, ".") // 253 bytes
	for in, want := range map[string]int{
		"h-[0-4095]": 4096, "h-[0-4096]": 0, "h[0-63]-[0-63]": 4096, "h[0-63]-[0-64]": 0, "h-[1-4096]": 4096, "h-[5-5]": 1, "h-[5-4]": 0,
		"h,h-[0-4095]": 0, "h,h-[0-4094]": 4096,
		label: 1, label + "x": 0, name: 1, name + "y": 0,
	} {
		if got, err := kube.Hosts(in); len(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%.20s (%d bytes): %d hosts, %v", in, len(in), len(got), err)
		}
	}
}

func TestTorchrunNeedsAllOfItsVariables(t *testing.T) {
	all := []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h"}
	if got := kube.Where(env(all...).lookup); got != kube.Torchrun {
		t.Error(got)
	}
	for _, without := range []string{"RANK=", "WORLD_SIZE=", "MASTER_ADDR=-"} {
		if got := kube.Where(env(append(all, without)...).lookup); got != kube.Outside {
			t.Errorf("%s: %v", without, got)
		}
	}
}

func TestPlacesByTorchrun(t *testing.T) {
	for _, c := range []struct {
		words []string
		needs bool // an address of its own
		slot  int
		port  int
		meet  string
	}{
		{[]string{"RANK=0", "MASTER_ADDR=h", "MASTER_PORT=7"}, false, 0, 7, "h"},
		{[]string{"RANK=1", "MASTER_ADDR=h"}, true, 0, 0, "h"},
		{[]string{"RANK=1", "MASTER_ADDR=h", "POD_IP=10.0.0.7"}, false, 0, 0, "h"},
		{[]string{"RANK=1", "MASTER_ADDR=localhost", "LOCAL_RANK=1"}, false, 1, 0, ""},
		{[]string{"RANK=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=7", "TORCHELASTIC_USE_AGENT_STORE=True"}, false, 0, 8, ""},
		{[]string{"RANK=1", "MASTER_ADDR=::1", "MASTER_PORT=7", "TORCHELASTIC_USE_AGENT_STORE=False"}, false, 0, 7, ""},
	} {
		pod, err := kube.Parse(env(append(c.words, "WORLD_SIZE=2")...).lookup)
		if err != nil {
			t.Errorf("%v: %v", c.words, err)
			continue
		}
		site := pod.Site()
		if pod.NeedsOwn() != c.needs || site.Launchers[pod.Rank].Slot != c.slot || pod.Port != c.port ||
			site.Rendezvous.Host != c.meet || site.Rendezvous.Here != (pod.Rank == 0) {
			t.Errorf("%v: needs %v, %+v, %+v", c.words, pod.NeedsOwn(), site, site.Rendezvous)
		}
	}
}

func TestJobIDsOfFortyBytesStay(t *testing.T) {
	for size, want := range map[int]bool{35: true, 36: false} { // "kube-" is before it
		pod := kube.Pod{Leader: strings.Repeat("x", size)}
		if id := pod.Job(); len(id) != 40 || (id == "kube-"+pod.Leader) != want {
			t.Errorf("%d: %s", size, id)
		}
	}
}

func TestJobSetPodsAreFoundByTheirWholeName(t *testing.T) {
	set := []string{"JOBSET_NAME=a", "REPLICATED_JOB_NAME=w", "JOB_INDEX=0", "JOB_COMPLETION_INDEX=1"}
	pod, err := kube.Parse(env(append(set, "DI_NODES=a-w-0-10.a,a-w-0-1.a")...).lookup)
	if err != nil || pod.Rank != 1 {
		t.Errorf("%+v, %v", pod, err)
	}
	pod, err = kube.Parse(env(append(set, "DI_NODES=a-w-0-10,a-w-0-1")...).lookup)
	if err != nil || pod.Rank != 1 {
		t.Errorf("%+v, %v", pod, err)
	}
}
