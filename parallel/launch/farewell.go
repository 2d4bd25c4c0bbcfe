package launch

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// farewellWithin is the time after which a process that sends a farewell is killed. It ends by itself
// within 2 s.
const farewellWithin = 3 * time.Second

// parted is the end of a process that has sent the farewell of a node.
type parted struct {
	index int
	cmd   *exec.Cmd
}

// lost is the message that the process of the node has ended.
func (n *node) lost(reason string, final bool) control.Message {
	return control.Message{Type: control.TypeLost, Lost: &control.Lost{Node: n.ID, Incarnation: n.incarnation, Reason: reason, Final: final}}
}

// sendFarewell starts the process that notifies the nodes of other launchers of the end of a node's
// process. Without one they notice it by the silence of the node. Every process that is started ends
// in exactly one send on parted.
func (l *Launcher) sendFarewell(i int, reason string, final bool) {
	n := l.nodes[i]
	line, err := n.lost(reason, final).Append(nil)
	if err != nil || len(l.cfg.Farewell) == 0 {
		return
	}
	env := l.env(n, l.core.nodes[i].attempt)
	cmd := exec.Command(l.cfg.Farewell[0], l.cfg.Farewell[1:]...) //nolint:noctx // it is killed when it is late
	if n.socket != nil {
		env.ListenFD = 3
		cmd.ExtraFiles = []*os.File{n.socket.file}
	}
	cmd.Stdin, cmd.Dir, cmd.SysProcAttr = bytes.NewReader(line), l.cfg.WorkDir, watcherAttr()
	cmd.Env = slices.Concat(control.Strip(l.cfg.Environ), env.Encode())
	if cmd.Start() != nil {
		return
	}
	n.farewell = cmd
	l.saying++
	l.waiters.Go(func() {
		late := time.AfterFunc(farewellWithin, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait() // whether it was received or not: there is nothing else to try
		l.parted <- parted{i, cmd}
	})
}

// cutFarewell ends the farewell of a node that is started again: the node itself takes its socket, and
// notifies all others by its new incarnation.
func (l *Launcher) cutFarewell(n *node) {
	if n.farewell != nil {
		_ = n.farewell.Process.Kill()
		n.farewell = nil
	}
}

// hasParted records the end of a farewell.
func (l *Launcher) hasParted(p parted) {
	l.saying--
	if n := l.nodes[p.index]; n.farewell == p.cmd {
		n.farewell = nil
		n.free()
	}
}

// free closes the socket of a node that is not started again, once its farewell is sent: nodes that
// dial it are refused from now on.
func (n *node) free() {
	if n.retired && n.farewell == nil && n.socket != nil {
		n.socket.close()
		n.socket = nil
	}
}

// endFarewells waits for the farewells after the end of all nodes, unless the user has
// interrupted the job twice, or does now.
func (l *Launcher) endFarewells() {
	forced := l.core.forced
	for l.saying > 0 {
		for _, n := range l.nodes {
			if forced && n.farewell != nil {
				_ = n.farewell.Process.Kill()
			}
		}
		select {
		case p := <-l.parted:
			l.hasParted(p)
		case sig := <-l.cfg.Signals:
			forced = forced || sig == syscall.SIGINT
		}
	}
}
