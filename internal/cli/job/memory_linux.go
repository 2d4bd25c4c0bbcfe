package job

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// availableMemory returns how many bytes of memory this process and its children may use together: those of the machine, or the
// least limit of a control group that they are in, or of the address space of a process; 0 if that is not known.
func availableMemory() uint64 {
	least := uint64(math.MaxUint64)
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		least = uint64(info.Totalram) * uint64(max(info.Unit, 1)) //nolint:unconvert // smaller on other processors
	}
	var space syscall.Rlimit // each node maps the memory of all others
	if syscall.Getrlimit(syscall.RLIMIT_AS, &space) == nil {
		least = min(least, space.Cur)
	}
	if least = min(least, groupLimit(os.DirFS("/"))); least == math.MaxUint64 {
		return 0
	}
	return least
}

// groupLimit returns the least limit of memory of the control groups that this process is in; math.MaxUint64 without one. root is
// the root of the file system.
func groupLimit(root fs.FS) uint64 {
	least := uint64(math.MaxUint64)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // none without /proc
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case controllers == "": // version 2
		case strings.Contains(","+controllers+",", ",memory,"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) { // in a container, the group may be the root
			b, err := fs.ReadFile(root, path.Join(mount, dir, file))
			if n, bad := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && bad == nil {
				least = min(least, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}
