//go:build amd64 || arm64

package hostile

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// memfd returns a memory file with the seals that an honest node asks for, and its memory; nil if the system has none.
func memfd(size int) (*os.File, []byte) {
	f := loose(size)
	if f == nil {
		return nil, nil
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		_ = f.Close()
		return nil, nil
	}
	const addSeals, shrinkAndGrow = 1033, 0x6
	if _, _, no := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), addSeals, shrinkAndGrow); no != 0 {
		forget(f, mem)
		return nil, nil
	}
	return f, mem
}

// loose returns a memory file without seals.
func loose(size int) *os.File {
	number := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	name := [...]byte{'x', 0}
	const allowSealing, cloexec = 0x2, 0x1
	fd, _, no := syscall.Syscall(number, uintptr(unsafe.Pointer(&name[0])), allowSealing|cloexec, 0)
	if no != 0 {
		return nil
	}
	f := os.NewFile(fd, "hostile memory")
	if err := f.Truncate(int64(size)); err != nil {
		_ = f.Close()
		return nil
	}
	return f
}

func forget(f *os.File, mem []byte) {
	if f != nil {
		_ = f.Close()
		_ = syscall.Munmap(mem)
	}
}

// openFile returns a file that an honest node refuses, by number; nil if it cannot be had.
func openFile(i int) *os.File {
	var f *os.File
	switch i {
	case 0:
		f, _ = os.Open(os.DevNull)
	case 1:
		f, _ = os.Open("/")
	case 2:
		f = loose(sharedBytes)
	}
	return f
}
