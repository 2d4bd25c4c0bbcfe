package parallel

import (
	"cmp"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/rundir"
)

// Dir is the folder for what the run writes: checkpoints, metrics. Each run has one.
// The first call makes it; on node 0 it also marks the folder with a file run.json, and
// logs it. A folder that cannot be made is an error where something is written there.
func (n *Node) Dir() string {
	// The folder is empty in Run without Config.Dir. The one to resume from is there.
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
	if n.env.NodeID == 0 {
		made, err = rundir.Claim(n.env.Dir, rundir.Mark{Job: cmp.Or(n.runID, n.env.JobID), Started: time.Now()})
	} else {
		err = os.MkdirAll(n.env.Dir, 0o755)
	}
	switch {
	case err != nil:
		n.log.Warn("the run folder cannot be made", slog.Any("err", err))
	case made:
		n.log.Info("run folder", slog.String("dir", n.env.Dir))
	}
}

// Resume reports whether the node is to go on from its checkpoint if there is one: it
// was restarted, the job has run before, or the user asked to resume.
func (n *Node) Resume() bool { return n.env.Resume || n.env.Continue || n.env.Attempt > 0 }

// MustResume reports whether the user asked to resume, so that a missing checkpoint is
// an error. Otherwise a node without a checkpoint begins at 0.
func (n *Node) MustResume() bool { return n.env.Resume }

// ownFolder decides the folder of a run that has no launcher to decide it.
func ownFolder(env *control.Env, launched bool) (run string, err error) {
	if launched && env.Dir != "" {
		return "", nil
	}
	r := rundir.Request{
		Dir: env.Dir, Program: strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), Job: env.JobID, Now: time.Now(), Derived: launched,
		Resume: env.Resume, Overwrite: env.Overwrite, Continued: launched || env.Continue || env.Replay != "",
	}
	if !launched {
		r.Job = strings.ToLower(rand.Text()[:8])
	}
	if env.Dir, err = rundir.Choose(r); err == nil && env.Overwrite {
		err = rundir.Clear(env.Dir)
	}
	return r.Job, err
}
