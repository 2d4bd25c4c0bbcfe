package job

import (
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/parallel/placement"
)

// Nodes of one host that connect by sockets share memory, unless the user wants none.
func TestSharedMemoryOfAPlan(t *testing.T) {
	two := placement.Site{Rank: 0, Launchers: []placement.Launcher{{Host: "a"}, {Host: "b"}}}
	same := placement.Site{Rank: 1, Launchers: []placement.Launcher{{Host: "a"}, {Host: "a", Slot: 1}}}
	open := placement.Site{Open: true, Launchers: []placement.Launcher{{Host: "a"}}}
	planned := func(line string, site placement.Site) (*urfave.Context, placement.Plan) {
		t.Helper()
		ctx := fields(t, line)
		plan, err := planOf(ctx, site, "j", "/r")
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return ctx, plan
	}
	for _, c := range []struct {
		line string
		env  string
		site placement.Site
		want int
	}{
		{"-n 2", "", placement.Site{}, 256},
		{"-n 16", "", placement.Site{}, 64},
		{"-n 2 --topology star", "", placement.Site{}, 256},
		{"-n 1", "", placement.Site{}, 0},
		{"-n 1 --attach-to unix:///x", "", placement.Site{}, 256},
		{"-n 1 --attach-to tcp://127.0.0.1:5000", "", placement.Site{}, 256},
		{"-n 2 --protocol tcp", "", placement.Site{}, 256},
		{"-n 2 --mq-type nats", "", placement.Site{}, 0},
		{"-n 1 --mq-type nats --attach-to bus://node.7", "", placement.Site{}, 0},
		{"-n 1", "", two, 0},
		{"-n 8", "", two, 128},
		{"-n 1", "", same, 256},
		{"-n 8", "", same, 64},
		{"-n 1", "", open, 256},
		{"-n 2 --no-shared-memory", "", placement.Site{}, 0},
		{"-n 2 --shared-memory 0", "", placement.Site{}, 0},
		{"-n 2 --shared-memory 0 --no-shared-memory", "", placement.Site{}, 0},
		{"-n 2 --shared-memory 1024", "", placement.Site{}, 1024},
		{"-n 2", "7", placement.Site{}, 7},
		{"-n 2", "0", placement.Site{}, 0},
		{"-n 2 --mq-type nats", "7", placement.Site{}, 0},
		{"-n 2 --shared-memory 8", "7", placement.Site{}, 8},
	} {
		with(t, "DITASK_SHARED_MEMORY="+c.env)
		ctx, plan := planned(c.line, c.site)
		got, err := sharedMemory(ctx, plan, func() uint64 { return 8 << 30 })
		if err != nil || got != c.want {
			t.Errorf("%s, %s: %d MiB, %v; want %d", c.line, c.env, got, err, c.want)
		}
		expect(t, idle(ctx, plan), "")
	}
	with(t)
	for line, want := range map[string]string{
		"-n 2 --shared-memory -1":                    "--shared-memory -1: want 0 to 1024 MiB",
		"-n 2 --shared-memory 1025":                  "--shared-memory 1025: want 0 to 1024 MiB",
		"-n 2 --shared-memory 64 --no-shared-memory": "--shared-memory 64: has no effect with --no-shared-memory: leave one of the two out",
	} {
		ctx, plan := planned(line, placement.Site{})
		_, err := sharedMemory(ctx, plan, availableMemory)
		expect(t, err, want)
	}
	ctx, plan := planned("-n 2 --mq-type nats --shared-memory 64", placement.Site{})
	if err := idle(ctx, plan); err == nil || !strings.Contains(err.Error(), "--shared-memory: has no effect") {
		t.Error(err)
	}
}

// All nodes of a launcher together take an eighth of the memory at most.
func TestDefaultOfSharedMemory(t *testing.T) {
	for _, c := range []struct {
		gib   float64
		nodes int
		want  int
	}{
		{16, 4, 256}, {8, 4, 256}, {7.5, 4, 240}, {4, 8, 64}, {1, 8, 16}, {1, 9, 0}, {0.5, 4, 16}, {0.25, 4, 0},
		{64, 64, 128}, {0, 4, 16}, {2, 0, 256},
	} {
		if got := defaultShared(uint64(c.gib*(1<<30)), c.nodes); got != c.want {
			t.Errorf("%v GiB for %d nodes: %d MiB each, want %d", c.gib, c.nodes, got, c.want)
		}
	}
}
