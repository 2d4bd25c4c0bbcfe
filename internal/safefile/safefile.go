// Package safefile opens files by name for writing where another user may write to the
// folder, such as one below /tmp, without being sent to another file by that user.
//
//	file, err := safefile.Append("logs/node-0.log", 0o644) // appends to an existing file
//	file, err := safefile.Create("traces/node-0-0.trace", 0o600) // replaces any file of that name
//	err := safefile.MkdirAll("runs/dqn", 0o755)
//
// A symbolic link on the way to the file is followed if it belongs to this process's user or
// to root, as with "runs -> /scratch/alice/runs". Any other link is an error that names the
// link and its owner, also where it leads to the same file. A file that is no regular file,
// such as a named pipe, must belong to them as well. The folder that was found is the one
// that is written to, and no link in it leads out of it, also if it is replaced in the meantime.
//
// Where the system has no owners, as on Windows, links are followed. Functions are safe for
// concurrent use. Errors are those of package os, and [*LinkError].
package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks bounds the links on the way to one file: as many as Linux follows.
const maxLinks = 40

// LinkError reports that a file is not opened since something on its way belongs to another
// user.
type LinkError struct {
	Path   string // of the link, or of the file that is no regular file
	Target string // of the link; empty for a file
	UID    int    // of its owner
}

// Error names the link, its owner and a remedy.
func (e *LinkError) Error() string {
	if e.Target == "" {
		return fmt.Sprintf("%s is no regular file and belongs to another user (uid %d): remove it, or choose another folder", e.Path, e.UID)
	}
	return fmt.Sprintf("%s is a symbolic link to %q of another user (uid %d), which is not followed: "+
		"give the path that it leads to if you trust it, or choose another folder", e.Path, e.Target, e.UID)
}

// Create makes a new file for writing. It removes an existing file or link of that name: a file
// that another user has made beforehand gets none of the written data. A folder, a pipe or
// a device is an error.
func Create(path string, perm fs.FileMode) (*os.File, error) {
	return again(func() (*os.File, error) { return self().create(path, perm) })
}

// Append opens a file for writing behind its content, and creates it if it is missing.
func Append(path string, perm fs.FileMode) (*os.File, error) {
	return again(func() (*os.File, error) { return self().open(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, perm) })
}

// Truncate opens a file for writing, removes its content, and makes it if it is
// missing. It may be a device or a pipe, such as /dev/stdout.
func Truncate(path string, perm fs.FileMode) (*os.File, error) {
	return again(func() (*os.File, error) { return self().open(path, os.O_TRUNC|os.O_CREATE|os.O_WRONLY, perm) })
}

// Update opens a file for reading and writing, and makes it if it is missing.
func Update(path string, perm fs.FileMode) (*os.File, error) {
	return again(func() (*os.File, error) { return self().open(path, os.O_RDWR|os.O_CREATE, perm) })
}

// New makes a file that must not be there; if it is, the error is [fs.ErrExist].
func New(path string, perm fs.FileMode) (*os.File, error) {
	return again(func() (*os.File, error) { return self().open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm) })
}

// Write makes a new file with data.
func Write(path string, data []byte, perm fs.FileMode) error {
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// MkdirAll makes a folder, and those around it that are missing.
func MkdirAll(path string, perm fs.FileMode) error { return self().mkdirAll(path, perm) }

// Owned fails with an error if a folder that exists, or a link on its way, belongs to
// another user, who could replace what is in it at any time.
func Owned(path string) error { return self().owned(path) }

var (
	errNotRegular = errors.New("it exists and is no regular file")
	errReplaced   = errors.New("the folder was replaced meanwhile")
)

// maxTries bounds how often a way is followed again since its folder was replaced, as by
// another process of this user that removes and makes it.
const maxTries = 10

// again calls open until the folder that it found is the one in which it opens a file.
func again(open func() (*os.File, error)) (*os.File, error) {
	for tries := 1; ; tries++ {
		f, err := open()
		if !errors.Is(err, errReplaced) || tries == maxTries {
			return f, err
		}
	}
}

// opener opens files for a user.
type opener struct {
	user, root int                           // whose links are followed
	owner      func(fs.FileInfo) (int, bool) // of a file; false: files have none
}

func self() opener { return opener{os.Geteuid(), 0, owner} }

// trusts reports whether a file belongs to somebody whose links are followed, and else whose
// it is.
func (o opener) trusts(info fs.FileInfo) (uid int, ok bool) {
	uid, known := o.owner(info)
	return uid, !known || uid == o.user || uid == o.root
}

// place is a path without links, which need not exist, and the folder around it as it was
// found; nil: it was not looked at.
type place struct {
	path   string
	folder fs.FileInfo
}

// resolve follows the links on the way to path.
func (o opener) resolve(path string) (place, error) {
	abs, err := filepath.Abs(path)
	if err != nil || !hasOwners {
		return place{abs, nil}, err
	}
	var found, folder fs.FileInfo // of at, and of the folder around it
	at := filepath.VolumeName(abs) + string(filepath.Separator)
	rest := parts(abs[len(filepath.VolumeName(abs)):])
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at, found, folder = filepath.Dir(at), nil, nil
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			if len(rest) > 0 {
				found = nil // the folder is missing too
			}
			return place{filepath.Join(append([]string{next}, rest...)...), found}, nil
		}
		if err != nil {
			return place{}, opening(next, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at, found, folder = next, info, found
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return place{}, err
		}
		if uid, ok := o.trusts(info); !ok {
			return place{}, &LinkError{next, target, uid}
		}
		if links++; links > maxLinks {
			return place{}, fmt.Errorf("open %s: more than %d symbolic links", path, maxLinks)
		}
		if filepath.IsAbs(target) {
			at, found, folder = filepath.VolumeName(target)+string(filepath.Separator), nil, nil
			target = target[len(filepath.VolumeName(target)):]
		}
		rest = slices.Concat(parts(target), rest)
	}
	return place{at, folder}, nil
}

// parts returns the names in a path, without those that mean nothing.
func parts(path string) []string {
	split := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == filepath.Separator })
	return slices.DeleteFunc(split, func(name string) bool { return name == "." })
}

// within calls open in the folder of a place, unless that has been replaced in the meantime. The
// path in an error is that of the place.
func within(p place, open func(root *os.Root, name string) (*os.File, error)) (*os.File, error) {
	dir, name := filepath.Split(p.path)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the file stays open
	if p.folder != nil {
		now, err := root.Stat(".")
		if err != nil {
			return nil, err
		}
		if !os.SameFile(p.folder, now) {
			return nil, fmt.Errorf("open %s: %w", p.path, errReplaced)
		}
	}
	f, err := open(root, name)
	return f, opening(p.path, err)
}

// opening gives an error of package os the whole path.
func opening(path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: "open", Path: path, Err: e.Err}
	}
	return err
}

func (o opener) create(path string, perm fs.FileMode) (*os.File, error) {
	p, err := o.resolve(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	p = place{path: filepath.Join(p.path, filepath.Base(path))}
	if p.folder, err = os.Lstat(filepath.Dir(p.path)); err != nil {
		return nil, err
	}
	return within(p, func(root *os.Root, name string) (*os.File, error) {
		const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
		f, err := root.OpenFile(name, flags, perm)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
			return nil, &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return root.OpenFile(name, flags, perm)
	})
}

func (o opener) open(path string, flags int, perm fs.FileMode) (*os.File, error) {
	p, err := o.resolve(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(p.path); errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return os.OpenFile(path, flags&^os.O_CREATE, 0) // a link of /proc, which leads to no path
		}
	}
	return within(p, func(root *os.Root, name string) (*os.File, error) {
		if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
			if uid, ok := o.trusts(info); !ok {
				return nil, &LinkError{Path: p.path, UID: uid}
			}
		}
		return root.OpenFile(name, flags, perm)
	})
}

func (o opener) mkdirAll(path string, perm fs.FileMode) error {
	// The missing target of a link is not created: it may be a file system that is not mounted.
	if _, err := o.resolve(path); err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		err := os.MkdirAll(path, perm)
		if tries < maxTries && errors.Is(err, fs.ErrExist) {
			if info, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
				continue // it was removed in the meantime
			}
		}
		return err
	}
}

func (o opener) owned(path string) error {
	p, err := o.resolve(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if uid, ok := o.trusts(info); !ok {
		return fmt.Errorf("folder %s belongs to another user (uid %d): choose a folder of your own", p.path, uid)
	}
	return nil
}
