package parallel

import (
	"cmp"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/rundir"
)

// Dir is the folder for what the run writes: checkpoints, metrics. Each run has one.
// The first call makes it; on node 0 it also marks the folder with a file run.json, and
// logs it. A folder that cannot be made is an error where something is written there.
func (n *Node) Dir() string {
	// The folder is empty in Run without Config.Dir. The folder to resume from exists.
	if n.env.Dir != "" && !n.env.Resume {
		n.claim.Do(n.claimDir)
	}
	return n.env.Dir
}

// claimDir makes the folder of the run. Node 0 is started after its launcher has found
// the folder to be free, others may be started before.
func (n *Node) claimDir() {
	var made bool
	var err error
	if n.runID != "" && n.lock == nil { // of a run without a launcher; its folder is new
		n.lock, err = lockFolder(n.env.Dir, n.runID, n.log)
	}
	switch {
	case err != nil:
	case n.env.NodeID == 0:
		made, err = rundir.Claim(n.env.Dir, rundir.Mark{Job: cmp.Or(n.runID, n.env.JobID), Started: time.Now()})
	default:
		err = safefile.MkdirAll(n.env.Dir, 0o755)
	}
	switch {
	case err != nil:
		n.log.Warn("the run folder cannot be made", slog.Any("err", err))
	case made:
		n.log.Info("run folder", slog.String("dir", n.env.Dir))
	}
}

// Resume reports whether the node is to continue from its checkpoint if there is one: it
// was restarted, the job has run before, or the user asked to resume.
func (n *Node) Resume() bool { return n.env.Resume || n.env.Continue || n.env.Attempt > 0 }

// MustResume reports whether the user asked to resume, so that a missing checkpoint is
// an error. Otherwise a node without a checkpoint begins at 0.
func (n *Node) MustResume() bool { return n.env.Resume }

// ownFolder decides the folder of a run that has no launcher to decide it, and locks it if the user
// has named it or resumes the run in it. A launcher locks it for its nodes. run is empty for a node of
// a launcher.
func ownFolder(env *control.Env, launched bool, log *slog.Logger) (run string, lock *rundir.Lock, err error) {
	if launched && env.Dir != "" {
		return "", nil, nil
	}
	r := rundir.Request{
		Dir: env.Dir, Program: strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), Job: env.JobID, Now: time.Now(), Derived: launched,
		Resume: env.Resume, Overwrite: env.Overwrite, Continued: launched || env.Continue || env.Replay != "",
	}
	if !launched {
		r.Job = strings.ToLower(rand.Text()[:8])
	}
	if env.Dir, err = rundir.Choose(r); err != nil {
		return "", nil, err
	}
	if launched { // the nodes of the job have it together
		return "", nil, nil
	}
	if env.Replay == "" && (r.Dir != "" || r.Resume) {
		if lock, err = lockFolder(env.Dir, r.Job, log); err != nil {
			return "", nil, err
		}
	}
	if env.Overwrite {
		if err = rundir.Clear(env.Dir); err != nil {
			lock.Release()
			return "", nil, err
		}
	}
	return r.Job, lock, nil
}

// releaseFolder lets other jobs have the folder that this node has locked.
func (n *Node) releaseFolder() {
	n.claim.Do(func() {}) // it is not locked any more after this
	n.lock.Release()
}

// lockFolder keeps other jobs out of a folder, as far as its file system can.
func lockFolder(dir, job string, log *slog.Logger) (*rundir.Lock, error) {
	l, err := rundir.Take(dir, rundir.Self(job))
	if _, held := errors.AsType[*rundir.HeldError](err); held {
		return nil, err
	}
	if errors.Is(err, rundir.ErrNoLock) {
		log.Warn("the run folder is not locked: start no other job in it", slog.Any("err", err))
	}
	return l, nil // a folder that cannot be written is an error where something is
}
