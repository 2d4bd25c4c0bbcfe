//go:build amd64 || arm64

package sharedmem

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Constants that package syscall does not have: from linux/memfd.h, linux/fcntl.h and linux/magic.h.
const (
	mfdCloexec       = 0x1
	mfdAllowSealing  = 0x2
	fAddSeals        = 1033
	fGetSeals        = 1034
	sealSeal         = 0x1
	sealShrink       = 0x2
	sealGrow         = 0x4
	sealFutureWrite  = 0x10 // no other process can write; since Linux 5.1
	tmpfsMagic       = 0x01021994
	memfdCreateAMD64 = 319
	memfdCreateARM64 = 279
)

func memfdCreate() uintptr {
	if runtime.GOARCH == "arm64" {
		return memfdCreateARM64
	}
	return memfdCreateAMD64
}

func create(name string, bytes int) (*os.File, []byte, error) {
	text, err := syscall.BytePtrFromString(name)
	if err != nil {
		return nil, nil, err
	}
	fd, _, no := syscall.Syscall(memfdCreate(), uintptr(unsafe.Pointer(text)), mfdCloexec|mfdAllowSealing, 0)
	if no != 0 {
		return nil, nil, fmt.Errorf("memfd_create: %w", no)
	}
	f := os.NewFile(fd, "shared memory")
	mem, err := fill(int(fd), bytes)
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, mem, nil
}

// fill gives a new memory file its size, its only writable mapping, and its seals.
func fill(fd, bytes int) ([]byte, error) {
	if err := syscall.Ftruncate(fd, int64(bytes)); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	mem, err := syscall.Mmap(fd, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if _, err := fcntl(fd, fAddSeals, sealSeal|sealShrink|sealGrow|sealFutureWrite); err != nil {
		_ = syscall.Munmap(mem)
		return nil, fmt.Errorf("seal: %w", err)
	}
	return mem, nil
}

// reserveBytes is how much is reserved by one call: less than what takes until the next signal of a profiler.
const reserveBytes = 1 << 20

// maxInterrupts is how often one call may be interrupted by a signal.
const maxInterrupts = 100

// reserve takes the pages of the n bytes at off of the memory file. Without it, a write where the system has
// none, as it promises no more memory than it has, would end this process.
func reserve(f *os.File, off, n int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for interrupts := 0; n > 0 && failed == nil; {
			piece := min(n, reserveBytes)
			switch failed = syscall.Fallocate(int(fd), 0, int64(off), int64(piece)); {
			case failed == nil:
				off, n, interrupts = off+piece, n-piece, 0
			case errors.Is(failed, syscall.EINTR) && interrupts < maxInterrupts:
				failed = nil
				interrupts++
			}
		}
	})
	return cmp.Or(err, failed)
}

func fcntl(fd, cmd, arg int) (int, error) {
	v, _, no := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(cmd), uintptr(arg))
	if no != 0 {
		return 0, no
	}
	return int(v), nil
}

// openShared opens the file through /proc, where its name is checked before and after: ref may come from any process that has
// the job's token, and the descriptor in it may be of any file.
func openShared(ref Ref, most int) (start string, mem []byte, err error) {
	path, want := fmt.Sprintf("/proc/%d/fd/%d", ref.PID, ref.FD), "/memfd:"+ref.Name+" (deleted)"
	if to, err := os.Readlink(path); err != nil || to != want {
		return "", nil, fmt.Errorf("%w: %w", ErrElsewhere, cmp.Or(err, errOther))
	}
	if start, err = startOf(ref.PID); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrElsewhere, &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer func() { _ = syscall.Close(fd) }()
	if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || to != want {
		return "", nil, fmt.Errorf("%w: %w", ErrElsewhere, cmp.Or(err, errOther))
	}
	mem, err = mapChecked(fd, most)
	return start, mem, err
}

var errOther = errors.New("another file has that descriptor")

// startOf returns when a process began, in ticks since the system did: field 22 of /proc/PID/stat.
func startOf(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if errors.Is(err, syscall.ESRCH) { // it ended while the file was read
			err = os.ErrNotExist
		}
		return "", err
	}
	const first, want = 3, 22 // the first field after the name, which may have spaces
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= want-first {
		return "", fmt.Errorf("/proc/%d/stat: %d fields after the name", pid, len(fields))
	}
	return string(fields[want-first]), nil
}

// mapChecked maps a file of another process. A file that could shrink, or that
// is of huge pages, which may run out, would end this process when it reads.
func mapChecked(fd, most int) ([]byte, error) {
	seals, err := fcntl(fd, fGetSeals, 0)
	if err != nil {
		return nil, fmt.Errorf("no memory file: %w", err)
	}
	if want := sealShrink | sealGrow; seals&want != want {
		return nil, fmt.Errorf("a memory file with seals %#x: it can change its size", seals)
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("fstatfs: %w", err)
	}
	if fs.Type != tmpfsMagic {
		return nil, fmt.Errorf("a memory file of type %#x", fs.Type)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if st.Size <= 0 || st.Size > int64(most) {
		return nil, fmt.Errorf("a memory file of %d bytes, want 1 to %d", st.Size, most)
	}
	mem, err := syscall.Mmap(fd, 0, int(st.Size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return mem, nil
}

func unmap(mem []byte) error { return syscall.Munmap(mem) }
