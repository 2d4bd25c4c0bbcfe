package data

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryLimit returns the most memory that this process may use, and the source of the limit:
// the least of its control group (version 2 or 1, with all parents), GOMEMLIMIT
// and the machine. root is the file system. A limit that cannot be read is ignored.
func memoryLimit(root fs.FS) (limit uint64, from string) {
	limit, from = math.MaxUint64, "nothing"
	lower := func(v uint64, who string) {
		if v < limit {
			limit, from = v, who
		}
	}
	if v := debug.SetMemoryLimit(-1); v < math.MaxInt64 {
		lower(uint64(v), "GOMEMLIMIT")
	}
	if v, ok := machineMemory(root); ok {
		lower(v, "the machine")
	}
	for _, file := range groupFiles(root) {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			lower(v, "the control group ("+file+")")
		}
	}
	return limit, from
}

// groupFiles returns the files that may hold a limit of this process's groups.
func groupFiles(root fs.FS) []string {
	const v2, v1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
	files := []string{path.Join(v2, "memory.max"), path.Join(v1, "memory.limit_in_bytes")}
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return files
	}
	for line := range strings.Lines(string(text)) {
		// hierarchy-ID:controller-list:path
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for dir := path.Clean("/" + parts[2]); dir != "/"; dir = path.Dir(dir) {
			switch {
			case parts[0] == "0" && parts[1] == "":
				files = append(files, path.Join(v2, dir, "memory.max"))
			case parts[1] == "memory":
				files = append(files, path.Join(v1, dir, "memory.limit_in_bytes"))
			}
		}
	}
	return files
}

// machineMemory returns the physical memory, from /proc/meminfo.
func machineMemory(root fs.FS) (uint64, bool) {
	text, _ := fs.ReadFile(root, "proc/meminfo") // what cannot be read has no lines
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			kb, err := strconv.ParseUint(f[1], 10, 54)
			return kb << 10, err == nil
		}
	}
	return 0, false
}
