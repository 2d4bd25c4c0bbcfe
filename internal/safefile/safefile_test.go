//go:build unix

package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// otherUser returns an opener to which the files of this process belong to another user.
func otherUser() opener { return opener{os.Geteuid() + 1, os.Geteuid() + 2, owner} }

// folder returns a folder without links on its way.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// opens are the functions that open a file, with what is in a file of "old" after "new".
var opens = map[string]struct {
	open func(o opener, path string) (*os.File, error)
	want string
}{
	"Append": {func(o opener, p string) (*os.File, error) {
		return o.open(p, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	}, "oldnew"},
	"Truncate": {func(o opener, p string) (*os.File, error) {
		return o.open(p, os.O_TRUNC|os.O_CREATE|os.O_WRONLY, 0o644)
	}, "new"},
	"Update": {func(o opener, p string) (*os.File, error) { return o.open(p, os.O_RDWR|os.O_CREATE, 0o644) }, "new"},
	"Create": {func(o opener, p string) (*os.File, error) { return o.create(p, 0o600) }, "new"},
}

// TestLinksOfAnotherUserAreNotFollowed lays a link of another user at each place on the way.
func TestLinksOfAnotherUserAreNotFollowed(t *testing.T) {
	for name, c := range opens {
		dir := folder(t)
		if err := os.MkdirAll(filepath.Join(dir, "victim", "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		victim := filepath.Join(dir, "victim", "file")
		put(t, victim, "old")
		link(t, victim, filepath.Join(dir, "absolute"))
		link(t, "victim/file", filepath.Join(dir, "relative"))
		link(t, "victim/missing", filepath.Join(dir, "dangling"))
		link(t, "victim", filepath.Join(dir, "runs"))
		link(t, "relative", filepath.Join(dir, "twice"))
		for _, path := range []string{"absolute", "relative", "dangling", "twice", "runs/file", "runs/sub/file", "runs/missing/file"} {
			f, err := c.open(otherUser(), filepath.Join(dir, path))
			if leaf := !strings.Contains(path, "/"); name == "Create" && leaf {
				if err != nil {
					t.Errorf("%s %s: %v", name, path, err)
				} else if _, err := f.WriteString("new"); err != nil || f.Close() != nil {
					t.Errorf("%s %s: %v", name, path, err)
				}
				if info, err := os.Lstat(filepath.Join(dir, path)); err != nil || !info.Mode().IsRegular() {
					t.Errorf("%s %s: %v, %v", name, path, info, err)
				}
			} else if e := new(LinkError); !errors.As(err, &e) || e.UID != os.Geteuid() || !strings.Contains(err.Error(), "of another user") {
				t.Errorf("%s %s: %v, %v", name, path, f, err)
			}
		}
		if got := text(t, victim); got != "old" {
			t.Errorf("%s: wrote %q through a link", name, got)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "victim")); err != nil || len(left) != 2 {
			t.Errorf("%s: made %v, %v", name, left, err)
		}
	}
}

// TestOwnLinksAreFollowed is a run folder on another file system, and a link to the newest run.
func TestOwnLinksAreFollowed(t *testing.T) {
	for name, c := range opens {
		if name == "Create" {
			continue
		}
		dir := folder(t)
		if err := os.MkdirAll(filepath.Join(dir, "scratch", "run-17"), 0o700); err != nil {
			t.Fatal(err)
		}
		link(t, filepath.Join(dir, "scratch"), filepath.Join(dir, "runs"))
		link(t, "run-17", filepath.Join(dir, "scratch", "latest"))
		link(t, "../latest/./log", filepath.Join(dir, "scratch", "run-17", "node.log"))
		put(t, filepath.Join(dir, "scratch", "run-17", "log"), "old")
		for _, path := range []string{"runs/latest/node.log", "runs/latest/fresh"} {
			f, err := c.open(self(), filepath.Join(dir, path))
			if err != nil {
				t.Errorf("%s %s: %v", name, path, err)
				continue
			}
			if _, err := f.WriteString("new"); err != nil || f.Close() != nil {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
		if got := text(t, filepath.Join(dir, "scratch", "run-17", "log")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := text(t, filepath.Join(dir, "scratch", "run-17", "fresh")); got != "new" {
			t.Errorf("%s: fresh %q", name, got)
		}
	}
}

// TestLinksOfRootAreFollowed is /home on another file system.
func TestLinksOfRootAreFollowed(t *testing.T) {
	dir := folder(t)
	link(t, dir, filepath.Join(dir, "home"))
	o := opener{os.Geteuid() + 1, os.Geteuid(), owner}
	if f, err := o.create(filepath.Join(dir, "home", "file"), 0o600); err != nil || f.Close() != nil {
		t.Error(err)
	}
}

func TestLinksOnAFolderOfAnotherUser(t *testing.T) {
	dir := folder(t)
	link(t, "victim", filepath.Join(dir, "runs"))
	if err := os.Mkdir(filepath.Join(dir, "victim"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "runs", "a", "b")
	e := new(LinkError)
	if err := otherUser().mkdirAll(path, 0o700); !errors.As(err, &e) || e.Path != filepath.Join(dir, "runs") {
		t.Error(err)
	}
	if err := otherUser().owned(path); !errors.As(err, &e) {
		t.Error(err)
	}
	if err := self().mkdirAll(path, 0o700); err != nil {
		t.Error(err)
	}
	if err := self().owned(path); err != nil {
		t.Error(err)
	}
	if err := otherUser().owned(filepath.Join(dir, "victim")); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Error(err)
	}
	if err := otherUser().owned(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
}

// TestFileThatIsMadeAnewIsOfThisUser replaces what somebody has made before.
func TestFileThatIsMadeAnewIsOfThisUser(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.Open(path) // its inode is not used again
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || os.SameFile(before, info) || info.Mode() != 0o600 || text(t, path) != "new" {
		t.Errorf("%v, %v: %q", info, err, text(t, path))
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "folder"), nil, 0o600); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
}

// TestCreateRemovesNoPipe holds for folders and devices as well.
func TestCreateRemovesNoPipe(t *testing.T) {
	path := filepath.Join(folder(t), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, 0o600); err == nil || !strings.Contains(err.Error(), "open "+path+": it exists and is no regular file") {
		t.Error(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestPipeOfAnotherUserIsNotOpened would block: nothing reads the pipe.
func TestPipeOfAnotherUserIsNotOpened(t *testing.T) {
	path := filepath.Join(folder(t), "node-0.log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := otherUser().open(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if e := new(LinkError); !errors.As(err, &e) || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
}

// TestFolderThatIsReplacedMeanwhile replaces a folder between the look at it and its use.
func TestFolderThatIsReplacedMeanwhile(t *testing.T) {
	dir := folder(t)
	for _, name := range []string{"runs", "victim"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p, err := self().resolve(filepath.Join(dir, "runs", "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "runs"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	link(t, "victim", filepath.Join(dir, "runs"))
	_, err = within(p, func(*os.Root, string) (*os.File, error) { t.Error("opened"); return nil, nil })
	if err == nil || !strings.Contains(err.Error(), "replaced meanwhile") {
		t.Error(err)
	}
}

func TestFaultsNameThePath(t *testing.T) {
	dir := folder(t)
	link(t, "b", filepath.Join(dir, "a"))
	link(t, "a", filepath.Join(dir, "b"))
	put(t, filepath.Join(dir, "file"), "")
	if _, err := Append(filepath.Join(dir, "a"), 0o600); err == nil || !strings.Contains(err.Error(), "symbolic links") {
		t.Error(err)
	}
	for name, c := range opens {
		missing := filepath.Join(dir, "missing", "file")
		if _, err := c.open(self(), missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filepath.Dir(missing)) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.open(self(), filepath.Join(dir, "file", "x")); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOutputMayBeADevice opens what is no regular file.
func TestOutputMayBeADevice(t *testing.T) {
	if f, err := Truncate(os.DevNull, 0o644); err != nil || f.Close() != nil {
		t.Error(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	path := "/dev/fd/" + strconv.Itoa(int(w.Fd()))
	if f, err := Truncate(path, 0o644); err != nil || f.Close() != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// TestManyMakeOneFile holds that what is made by many at once is whole.
func TestManyMakeOneFile(t *testing.T) {
	path := filepath.Join(folder(t), "file")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if f, err := Append(path, 0o600); err != nil || f.Close() != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
