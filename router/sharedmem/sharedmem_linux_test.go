//go:build amd64 || arm64

package sharedmem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

const varChild = "DITASK_TEST_SHAREDMEM"

func TestMain(m *testing.M) {
	switch os.Getenv(varChild) {
	case "":
		os.Exit(m.Run())
	case "limits":
		limits()
		return
	}
	var ref Ref
	err := json.Unmarshal([]byte(os.Getenv(varChild)), &ref)
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	in, err := Open(ref, MaxBytes)
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	b, err := in.Hold(page, 5)
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(b)
}

// limits makes arenas where the process may not have them, and one where it may.
func limits() {
	for _, limit := range []struct {
		what int
		max  uint64
	}{{syscall.RLIMIT_FSIZE, 8 * page}, {syscall.RLIMIT_NOFILE, 0}, {syscall.RLIMIT_AS, 1}} {
		var was syscall.Rlimit
		err := syscall.Getrlimit(limit.what, &was)
		if err == nil {
			err = syscall.Setrlimit(limit.what, &syscall.Rlimit{Cur: limit.max, Max: was.Max})
		}
		if err != nil {
			fmt.Println(err)
		}
		a, err := New(9 * page)
		fmt.Println(a != nil, err)
		_ = syscall.Setrlimit(limit.what, &was)
	}
	a, err := New(9 * page)
	fmt.Println(a != nil, err)
}

// A limit of the process is an error, after which the process continues.
func TestLimitsOfTheProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), varChild+"=limits")
	out, err := cmd.CombinedOutput()
	want := `false ftruncate: file too large
false memfd_create: too many open files
false mmap: cannot allocate memory
true <nil>
`
	if err != nil || string(out) != want {
		t.Errorf("%v, %s", err, out)
	}
}

// Where the system has no pages, there is no segment, and memory that had pages before is used again.
func TestNoPages(t *testing.T) {
	a := arena(t, 8)
	first := a.Take(2 * page)
	_ = a.file.Close() // the system's answer: no pages
	if s := a.Take(4 * page); s != nil {
		t.Error("a segment without pages")
	}
	if now := a.Stats(); now != (Stats{1, 2 * page, 2 * page, true}) {
		t.Errorf("%+v", now)
	}
	first.Release()
	for range 2 {
		if a.Take(3*page) != nil {
			t.Error("a segment without pages")
		}
		s := a.Take(2 * page)
		if s == nil {
			t.Fatal("no segment of the pages that there are")
		}
		s.Release()
	}
	if now := a.Stats(); now != (Stats{0, 0, 2 * page, true}) {
		t.Errorf("%+v", now)
	}
}

// Segments have their pages before they are written to, and low ones are not taken twice.
func TestSegmentsHaveTheirPages(t *testing.T) {
	a := arena(t, 1024)
	blocks := func() int64 {
		var st syscall.Stat_t
		if err := syscall.Fstat(int(a.file.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	var all []*Segment
	for range 3 {
		all = append(all, a.Take(300*page))
	}
	if n := blocks(); n != 900*page {
		t.Errorf("pages for %d bytes, want %d", n, 900*page)
	}
	for _, s := range all {
		s.Release()
	}
	s := a.Take(800 * page)
	if n := blocks(); n != 900*page || a.sure != 900*page {
		t.Errorf("pages for %d bytes, of %d sure, want %d", n, a.sure, 900*page)
	}
	s.Release()
}

// Goroutines that take and release at once never have the same memory.
func TestSegmentsOfManyGoroutines(t *testing.T) {
	a := arena(t, 64)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				s := a.Take((1 + (i+g)%9) * page)
				if s == nil {
					continue
				}
				b := s.Bytes()
				for k := 0; k < len(b); k += page {
					b[k] = byte(g)
				}
				for k := 0; k < len(b); k += page {
					if b[k] != byte(g) {
						t.Error("two segments overlap")
					}
				}
				s.Release()
			}
		})
	}
	wg.Wait()
	if now := a.Stats(); now.Segments != 0 || now.Used != 0 || len(a.free) != 1 {
		t.Errorf("%+v, %d sure, %v free", now, a.sure, a.free)
	}
}

func arena(t *testing.T, pages int) *Arena {
	t.Helper()
	a, err := New(pages * page)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// reader returns a command that reads the memory of a in another process.
func reader(t *testing.T, a *Arena) *exec.Cmd {
	t.Helper()
	ref, err := json.Marshal(a.Ref())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), varChild+"="+string(ref))
	return cmd
}

// Another process reads what this one has written.
func TestAnotherProcessReads(t *testing.T) {
	a := arena(t, 4)
	first, s := a.Take(1), a.Take(5)
	copy(s.Bytes(), "hello")
	out, err := reader(t, a).Output()
	if err != nil || string(out) != "hello" {
		t.Errorf("%q, %v", out, err)
	}
	first.Release()
	s.Release()
}

// Processes of other users, and in other namespaces of processes, cannot open the memory.
func TestOthersDoNotOpen(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	for name, attr := range map[string]*syscall.SysProcAttr{
		"user":      {Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
		"namespace": {Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS},
	} {
		cmd := reader(t, arena(t, 4))
		if name == "namespace" {
			cmd.Args, cmd.Path = []string{"sh", "-c", `mount -t proc proc /proc && exec "$0"`, cmd.Path}, "/bin/sh"
		} else { // the program may be in a folder that the other user cannot enter
			dir, err := os.MkdirTemp("", "sharedmem") //nolint:usetesting // that of t.TempDir is this user's alone
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			path := filepath.Join(dir, "reader")
			b, err := os.ReadFile(os.Args[0])
			if err = errors.Join(err, os.WriteFile(path, b, 0o755), os.Chmod(dir, 0o755)); err != nil {
				t.Fatal(err)
			}
			cmd.Path, cmd.Dir = path, "/"
		}
		var stderr strings.Builder
		cmd.SysProcAttr, cmd.Stderr = attr, &stderr
		if out, err := cmd.Output(); err == nil || len(out) > 0 || !strings.Contains(stderr.String(), ErrElsewhere.Error()) {
			t.Errorf("%s: %q, %v, %s", name, out, err, &stderr)
		}
	}
}

// A mapping knows whether its process has ended, also when another process has its number.
func TestProcessOfAMappingHasEnded(t *testing.T) {
	m, err := Open(arena(t, 1).Ref(), MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if m.Ended() {
		t.Error("this process has ended")
	}
	other := &Mapping{pid: m.pid, start: m.start + "0"}
	if !other.Ended() {
		t.Error("a process that began at another time is the same")
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	child := &Mapping{pid: cmd.Process.Pid}
	if child.start, err = startOf(child.pid); err != nil || child.Ended() {
		t.Errorf("a process that runs has ended: %v", err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil || !child.Ended() {
		t.Errorf("a process that has ended runs: %v", err)
	}
}

// Segments never overlap, low addresses are used again, and freed neighbours are joined.
func TestSegmentsAreUsedAgain(t *testing.T) {
	a := arena(t, 8)
	var all []*Segment
	for range 4 {
		all = append(all, a.Take(2*page))
	}
	if s := a.Take(1); s != nil {
		t.Error("a segment of a full arena")
	}
	for i, s := range all {
		if s.Offset() != 2*i*page || len(s.Bytes()) != 2*page || cap(s.Bytes()) != 2*page {
			t.Errorf("segment %d: %d of %d bytes at %d", i, len(s.Bytes()), cap(s.Bytes()), s.Offset())
		}
	}
	for _, i := range []int{1, 3, 2} {
		all[i].Release()
	}
	s := a.Take(5 * page)
	if s == nil || s.Offset() != 2*page {
		t.Fatal("what was given back has not come together")
	}
	s.Fit(page + 1)
	if now := a.Stats(); now != (Stats{2, 4 * page, 8 * page, false}) || len(s.Bytes()) != page+1 {
		t.Errorf("%+v, %d bytes", now, len(s.Bytes()))
	}
	s.Fit(0)
	all[0].Release()
	if next := a.Take(2 * page); next == nil || next.Offset() != 0 {
		t.Error("the lowest address is not used first")
	}
	s.Release()
	if now := a.Stats(); now.Segments != 1 || now.Used != 2*page {
		t.Errorf("%+v", now)
	}
	for _, n := range []int{0, -1, 9 * page} {
		if a.Take(n) != nil {
			t.Errorf("a segment of %d bytes", n)
		}
	}
}

// A segment outlives its arena; it is released once.
func TestArenaIsUnmappedAfterItsSegments(t *testing.T) {
	a := arena(t, 2)
	s := a.Take(page)
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	s.Bytes()[0] = 1
	if a.Take(1) != nil || a.mem == nil {
		t.Error("a segment of a closed arena")
	}
	s.Release()
	if a.mem != nil {
		t.Error("the arena is mapped")
	}
	defer func() {
		if recover() == nil {
			t.Error("released twice")
		}
	}()
	s.Release()
}

func TestSizesOfArenas(t *testing.T) {
	for _, n := range []int{0, -page, page + 1, MaxBytes + page} {
		if a, err := New(n); a != nil || err == nil || !strings.Contains(err.Error(), "want a multiple of 4096") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A mapping gives what is within it, and stays until all of it has been dropped.
func TestRangesAreChecked(t *testing.T) {
	a := arena(t, 2)
	m, err := Open(a.Ref(), MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]uint64{{0, 2*page + 1}, {2 * page, 1}, {2*page + 1, 0}, {math.MaxUint64, 2}, {2, math.MaxUint64}} {
		if b, err := m.Hold(c[0], c[1]); b != nil || !errors.Is(err, ErrRange) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
	b, err := m.Hold(page, page)
	if err != nil || len(b) != page || cap(b) != page || m.Size() != 2*page {
		t.Fatal(err)
	}
	m.Close()
	if _, err := m.Hold(0, 1); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
	if !bytes.Equal(b, make([]byte, page)) || m.mem == nil {
		t.Error("what is held is not there")
	}
	m.Drop()
	if m.mem != nil {
		t.Error("it is still mapped")
	}
}

// Only the maker of an arena writes to it, or changes its size.
func TestOthersCannotWrite(t *testing.T) {
	a := arena(t, 1)
	m, err := Open(a.Ref(), MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := m.Hold(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer m.Drop()
		defer func() {
			if recover() == nil {
				t.Error("a reader has written")
			}
		}()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		b[0] = 1
	}()
	fd := int(a.file.Fd())
	if _, err := syscall.Mmap(fd, 0, page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a second writable mapping: %v", err)
	}
	if _, err := syscall.Pwrite(fd, []byte{1}, 0); !errors.Is(err, syscall.EPERM) {
		t.Errorf("a write: %v", err)
	}
	for _, size := range []int64{0, 2 * page} {
		if err := syscall.Ftruncate(fd, size); !errors.Is(err, syscall.EPERM) {
			t.Errorf("a size of %d: %v", size, err)
		}
	}
}

// refOf returns how f is opened, as a hostile node may give it.
func refOf(t *testing.T, f *os.File) Ref {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	name, _ := strings.CutSuffix(strings.TrimPrefix(to, "/memfd:"), " (deleted)")
	return Ref{os.Getpid(), int(f.Fd()), name}
}

// refuses checks that Open returns such an error, and keeps no descriptor.
func refuses(t *testing.T, ref Ref, most int, is error, text string) {
	t.Helper()
	before, _ := os.ReadDir("/proc/self/fd")
	m, err := Open(ref, most)
	after, _ := os.ReadDir("/proc/self/fd")
	if m != nil || err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), text) || len(after) != len(before) {
		t.Errorf("%+v: %v; %d descriptors, now %d", ref, err, len(before), len(after))
	}
}

// A file that could end this process when it is read is refused.
func TestOtherFilesAreRefused(t *testing.T) {
	text, err := syscall.BytePtrFromString("x")
	if err != nil {
		t.Fatal(err)
	}
	fd, _, no := syscall.Syscall(memfdCreate(), uintptr(unsafe.Pointer(text)), mfdAllowSealing, 0)
	if no != 0 {
		t.Fatal(no)
	}
	loose := os.NewFile(fd, "loose")
	defer func() { _ = loose.Close() }()
	if err := loose.Truncate(page); err != nil {
		t.Fatal(err)
	}
	refuses(t, refOf(t, loose), MaxBytes, nil, "it can change its size")
	if err := loose.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := fcntl(int(fd), fAddSeals, sealShrink|sealGrow); err != nil {
		t.Fatal(err)
	}
	refuses(t, refOf(t, loose), MaxBytes, nil, "a memory file of 0 bytes")
	refuses(t, arena(t, 3).Ref(), 2*page, nil, "a memory file of 12288 bytes, want 1 to 8192")
}

// A Ref opens the memory that it was made for, and no other file.
func TestRefsOfOtherFiles(t *testing.T) {
	a, b := arena(t, 1), arena(t, 1)
	plain, err := os.Create(filepath.Join(t.TempDir(), a.Ref().Name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	pipe, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = pipe.Close(), in.Close() }()
	ended := arena(t, 1)
	_ = ended.Close()
	edit := func(do func(*Ref)) Ref { ref := a.Ref(); do(&ref); return ref }
	for _, ref := range []Ref{
		{}, ended.Ref(), refOf(t, plain), refOf(t, pipe),
		edit(func(r *Ref) { r.Name = b.Ref().Name }),
		edit(func(r *Ref) { r.Name = "" }),
		edit(func(r *Ref) { r.Name += " (deleted)" }),
		edit(func(r *Ref) { r.FD = b.Ref().FD }),
		edit(func(r *Ref) { r.FD = int(plain.Fd()) }),
		edit(func(r *Ref) { r.FD = int(pipe.Fd()) }),
		edit(func(r *Ref) { r.FD = -1 }),
		edit(func(r *Ref) { r.FD = math.MaxInt }),
		edit(func(r *Ref) { r.PID = 0 }),
		edit(func(r *Ref) { r.PID = -r.PID }),
		edit(func(r *Ref) { r.PID = 1 }),
		edit(func(r *Ref) { r.PID = math.MaxInt }),
	} {
		refuses(t, ref, MaxBytes, ErrElsewhere, "")
	}
	if m, err := Open(a.Ref(), MaxBytes); err != nil {
		t.Error(err)
	} else {
		m.Close()
	}
}
