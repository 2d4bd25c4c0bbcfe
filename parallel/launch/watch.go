package launch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// watchGrace is the time that nodes have to end by themselves when their launcher has been
// killed. A node in parallel.Main needs 3 s at most.
const watchGrace = 3500 * time.Millisecond

// Watch is the watcher of a launcher: the main function of the process that
// Config.Watcher starts. It reads from r which processes the launcher has started,
// until the launcher ends. If that did not end in order, Watch waits 3.5 s for the
// process groups of the nodes to end, then kills those that are left, whatever they
// do, and removes their sockets.
func Watch(r io.Reader) {
	w := watched{groups: map[int]bool{}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		w.receive(lines.Text())
	}
	if w.done {
		return
	}
	w.find()
	groups := w.left()
	for deadline := time.Now().Add(watchGrace); len(groups) > 0 && time.Now().Before(deadline); groups = w.left() {
		<-time.After(50 * time.Millisecond) // they are not our children: there is nothing to wait on
	}
	for _, pid := range groups {
		killGroupOf(pid)
	}
	for _, addr := range w.sockets {
		control.RemoveSocket(addr)
	}
}

// The lines that a launcher writes to its watcher.
const (
	watchBegin  = "begin"  // and the incarnation of a node that is about to be started
	watchStart  = "start"  // and the pid of that process, which leads a group
	watchEnd    = "end"    // and a pid: nothing of its group is left
	watchSocket = "socket" // and the address of a node's socket
	watchDone   = "done"   // the launcher has ended in order
)

// watched is the state of a watcher.
type watched struct {
	begun   string // incarnation of a node whose pid has not come yet; empty: none
	groups  map[int]bool
	sockets []string
	done    bool
}

func (w *watched) receive(line string) {
	what, rest, _ := strings.Cut(line, " ")
	pid, err := strconv.Atoi(rest)
	switch {
	case what == watchDone:
		w.done = true
	case what == watchSocket:
		w.sockets = append(w.sockets, rest)
	case what == watchBegin:
		w.begun = rest
	case err != nil || pid <= 1: // the group 0 is our own, and 1 is everything
	case what == watchStart:
		w.begun, w.groups[pid] = "", true
	case what == watchEnd:
		delete(w.groups, pid)
	}
}

// find adds the process that the launcher was starting when it ended, of which it could
// not write the pid any more. The pipe stays open until that process runs its program,
// so it has its environment by now.
func (w *watched) find() {
	if w.begun == "" {
		return
	}
	for _, pid := range leadersWith(control.VarIncarnation + "=" + w.begun) {
		w.groups[pid] = true
	}
}

// left are the groups that have a process. A group that has none is forgotten: another
// process may get its number.
func (w *watched) left() []int {
	var left []int
	for pid := range w.groups {
		if groupIsThere(pid) {
			left = append(left, pid)
		} else {
			delete(w.groups, pid)
		}
	}
	slices.Sort(left)
	return left
}

// watcher is the launcher's end of its watcher. A nil watcher does nothing.
type watcher struct {
	cmd   *exec.Cmd
	pipe  *os.File
	wait  sync.WaitGroup
	ended func() // called when the process ends before finish

	mu       sync.Mutex
	finished bool
}

// startWatcher starts the process that command names, apart from the terminal and the
// output of this one. ended is called if it ends by itself.
func startWatcher(command, environ []string, ended func()) (*watcher, error) {
	if len(command) == 0 {
		return nil, nil
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w := &watcher{cmd: exec.Command(command[0], command[1:]...), pipe: ours, ended: ended} //nolint:noctx // it ends with its pipe
	w.cmd.Stdin, w.cmd.Env, w.cmd.SysProcAttr = theirs, control.Strip(environ), watcherAttr()
	err = w.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	w.wait.Go(w.reap)
	return w, nil
}

// reap waits for the end of the process.
func (w *watcher) reap() {
	_ = w.cmd.Wait() // however it has ended
	w.mu.Lock()
	finished := w.finished
	w.mu.Unlock()
	if !finished {
		w.ended()
	}
}

// send writes a line, and ignores errors.
func (w *watcher) send(what string, rest any) {
	if w != nil && w.pipe.SetWriteDeadline(time.Now().Add(promptly)) == nil {
		_, _ = fmt.Fprintf(w.pipe, "%s %v\n", what, rest) // it may have been killed, which reap reports
	}
}

// finish ends the process, in order.
func (w *watcher) finish() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.finished = true
	w.mu.Unlock()
	w.send(watchDone, "")
	_ = w.pipe.Close()
	w.wait.Wait()
}
