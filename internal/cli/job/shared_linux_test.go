package job

import (
	"math"
	"testing"
	"testing/fstest"
)

// The least limit of all groups counts, of both versions, and no limit is none.
func TestLimitsOfControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"no /proc": {nil, math.MaxUint64},
		"a container, version 2": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		"no limit": {map[string]string{
			"proc/self/cgroup": "0::/a.slice\n", "sys/fs/cgroup/a.slice/memory.max": "max\n",
		}, math.MaxUint64},
		"a parent's limit": {map[string]string{
			"proc/self/cgroup": "0::/job/step/task\n", "sys/fs/cgroup/job/memory.max": "1048576\n",
			"sys/fs/cgroup/job/step/memory.max": "2097152\n", "sys/fs/cgroup/job/step/task/memory.max": "max\n",
		}, 1 << 20},
		"version 1": {map[string]string{
			"proc/self/cgroup": "12:cpu,cpuacct:/x\n5:memory:/docker/1\n0::/\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes":     "4194304\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":              "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":            "1\n",
			"sys/fs/cgroup/cpu/docker/1/memory.limit_in_bytes":        "1\n",
			"sys/fs/cgroup/memory/docker/1/sub/memory.limit_in_bytes": "1\n",
		}, 4 << 20},
		"garbage": {map[string]string{
			"proc/self/cgroup": "0\n:\n::\n0::../../etc\n", "sys/fs/cgroup/memory.max": "-1\n", "etc/memory.max": "1\n",
		}, math.MaxUint64},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := groupLimit(root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
