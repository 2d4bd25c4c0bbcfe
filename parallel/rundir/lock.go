package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/safefile"
)

// LockFile is the file in the folder of a run that the running job holds a lock on.
const LockFile = "run.lock"

// Holder names the process that holds the lock of a folder.
type Holder struct {
	Job     string    `json:"job"`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// HeldError is the error of [Take] for a folder in which a job runs.
type HeldError struct {
	Dir string
	By  Holder // the zero value if it has not written it yet
}

// Error names the folder, the process that has it, and the remedy.
func (e *HeldError) Error() string {
	by := "a job that runs"
	if e.By.PID != 0 {
		by = fmt.Sprintf("job %s, which runs (process %d on host %s, started %s)",
			e.By.Job, e.By.PID, e.By.Host, e.By.Started.Format(time.DateTime))
	}
	return fmt.Sprintf("folder %s is in use by %s: wait for its end, or choose another --dir (DITASK_DIR)", absolute(e.Dir), by)
}

// ErrNoLock is wrapped by the error of [Take] where the file system has no locks.
var ErrNoLock = errors.New("the file system has no locks")

// Lock is the right of one job to write into a folder. A nil Lock is none. The kernel
// frees it when the process ends, however it does.
type Lock struct {
	file *os.File
	path string   // of the file
	made []string // the folders that Take has made, the innermost first
}

// Take locks the folder of a run, which it makes if it is missing, for this process, until
// [Lock.Release]. The error is a [*HeldError] if another job has it.
func Take(dir string, by Holder) (*Lock, error) {
	for range 100 { // a release at the same time removes file and folder
		l, err := take(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, errHeld):
			return nil, &HeldError{dir, heldBy(dir)}
		case err != nil:
			return nil, fmt.Errorf("run folder: %w", err)
		}
		text, err := json.Marshal(by)
		if err == nil {
			err = l.file.Truncate(0)
		}
		if err == nil {
			_, err = l.file.WriteAt(append(text, '\n'), 0)
		}
		if err != nil {
			l.Release()
			return nil, fmt.Errorf("run folder: %w", err)
		}
		return l, nil
	}
	return nil, fmt.Errorf("run folder: %s goes away again and again", filepath.Join(dir, LockFile))
}

// errHeld and fs.ErrNotExist are the errors of take that Take deals with.
var errHeld = errors.New("held by another process")

func take(dir string) (l *Lock, err error) {
	l = &Lock{}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		l.made = append(l.made, d)
	}
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l.path = filepath.Join(dir, LockFile)
	if l.file, err = safefile.Update(l.path, 0o644); err != nil {
		l.clean()
		return nil, err
	}
	if err = lock(l.file); err == nil {
		err = sameFile(l.file, l.path)
	}
	if err != nil {
		_ = l.file.Close()
		l.clean()
		return nil, err
	}
	return l, nil
}

// Held reports whether a job holds the lock of a folder, without taking it. The error wraps [ErrNoLock] where the
// system or the file system has no locks.
func Held(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, LockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("run folder: %w", err)
	}
	defer func() { _ = f.Close() }()
	held, err := held(f)
	if err != nil {
		return false, fmt.Errorf("run folder %s: %w", dir, err)
	}
	return held, nil
}

// sameFile fails with fs.ErrNotExist if path is not that of the file any more, as the
// holder of the lock has removed it.
func sameFile(f *os.File, path string) error {
	ours, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err == nil && !os.SameFile(ours, there) {
		err = fs.ErrNotExist
	}
	return err
}

// heldBy reads the holder of the lock.
func heldBy(dir string) (h Holder) {
	if text, err := os.ReadFile(filepath.Join(dir, LockFile)); err == nil && json.Unmarshal(text, &h) != nil {
		return Holder{}
	}
	h.Job, h.Host = printable.Text(h.Job), printable.Text(h.Host)
	return h
}

// Release frees the lock, and removes its file and the folders that Take has made, if they are empty.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	_ = os.Remove(l.path) // while it is held
	_ = l.file.Close()
	l.file = nil
	l.clean()
}

// clean removes the folders that take has made, if they are empty.
func (l *Lock) clean() {
	for _, dir := range l.made {
		if os.Remove(dir) != nil { // it has files
			return
		}
	}
}

// Self is this process as the holder of a lock for a job.
func Self(job string) Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Holder{Job: job, PID: os.Getpid(), Host: host, Started: time.Now()}
}
