// Package traceview shows the records of parallel/trace: the messages between nodes
// and their times, as text and as a picture.
//
//	v, err := traceview.Load(files, traceview.Filter{Event: "rl.*"})
//	err = v.Text(os.Stdout)
//	err = v.SVG(file, 400)
package traceview

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/trace"
)

// Filter selects the records to show. The zero value shows everything.
type Filter struct {
	Event        string        // glob of the event's name; empty: all
	Nodes        []int         // only messages that one of these sends or receives; nil: all
	Since, Until time.Duration // from the beginning of the trace; Until 0: to the end
}

// View is a trace of several nodes. Its texts are safe to print, whatever program has written the
// files.
type View struct {
	Job      string
	Began    time.Time
	Nodes    []Node    // by id and attempt
	Messages []Message // by time
	Changes  []Change  // by time
	Hidden   int       // messages that the filter leaves out
}

// Node is the file of one start of a node.
type Node struct {
	File       string
	Head       trace.Head
	Limit      bool // the file reached its limit
	Killed     bool // the node did not end the file
	Last       time.Time
	Sent, Came int
}

// Message is one message to one node.
type Message struct {
	Event    string
	From, To int
	Version  uint64
	Bytes    int
	Sent     time.Time // zero: not in the trace
	Received time.Time // zero: not received, or not in the trace
}

// At is when the message is first seen.
func (m *Message) At() time.Time {
	if m.Sent.IsZero() {
		return m.Received
	}
	return m.Sent
}

// Change is a change of a peer, as one node saw it.
type Change struct {
	At   time.Time
	Seen int // the node that saw it
	trace.Peer
}

// Files returns the trace files that args name: files, and folders of them.
func Files(args []string) ([]string, error) {
	var files []string
	for _, a := range args {
		info, err := os.Stat(a)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no such file or folder: give the folder of --trace, or files of it", a)
		}
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, a)
			continue
		}
		found, err := filepath.Glob(filepath.Join(a, trace.Pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: no trace in it: want files such as %s", a, trace.Path("", 0, 0))
		}
		files = append(files, found...)
	}
	return files, nil
}

// sending identifies a message. The incarnation is the sender's.
type sending struct {
	from        int
	incarnation uint64
	to          int
	event       string
	version     uint64
}

// Load reads files, which are of one job.
func Load(files []string, f Filter) (*View, error) {
	if _, err := path.Match(f.Event, ""); err != nil {
		return nil, fmt.Errorf("event %q: %w", f.Event, err)
	}
	v := &View{}
	l := loader{v: v, sent: map[sending][]*Message{}}
	for _, file := range files {
		n, err := l.read(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", printable.Text(file), printable.Error(err))
		}
		if len(v.Nodes) > 0 && n.Head.Job != v.Job {
			return nil, fmt.Errorf("%s is of job %s, others are of job %s", printable.Text(file), n.Head.Job, v.Job)
		}
		v.Job = n.Head.Job
		v.Nodes = append(v.Nodes, n)
	}
	l.match()
	v.order(f, l.all)
	return v, nil
}

// loader gathers the records of several files.
type loader struct {
	v    *View
	all  []*Message
	sent map[sending][]*Message // in order of time
	came []arrival
}

// arrival is a message that was received, and who sent it.
type arrival struct {
	sending
	m *Message
}

func (l *loader) read(name string) (Node, error) {
	n := Node{File: printable.Text(name), Killed: true}
	file, err := os.Open(name)
	if err != nil {
		return n, err
	}
	defer func() { _ = file.Close() }()
	r := trace.NewReader(file)
	incarnations := map[int]uint64{} // of the peers, as this node knew them
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if l.v.Began.IsZero() || rec.Time.Before(l.v.Began) {
			l.v.Began = rec.Time
		}
		n.Last = rec.Time
		switch rec.Kind {
		case trace.KindHead:
			n.Head = *rec.Head
			n.Head.Job = printable.Text(n.Head.Job)
		case trace.KindPeer:
			if rec.Peer.Change == trace.PeerJoined {
				incarnations[rec.Peer.Node] = rec.Peer.Incarnation
			}
			p := *rec.Peer
			p.Change, p.Error = printable.Text(p.Change), printable.Lines(p.Error)
			l.v.Changes = append(l.v.Changes, Change{rec.Time, n.Head.Node, p})
		case trace.KindSent:
			n.Sent++
			m := &Message{Event: printable.Text(rec.Event.Name), From: n.Head.Node, To: rec.Node, Version: rec.Version, Bytes: rec.Bytes,
				Sent: rec.Time}
			k := sending{m.From, n.Head.Incarnation, m.To, m.Event, m.Version}
			l.sent[k] = append(l.sent[k], m)
			l.all = append(l.all, m)
		case trace.KindReceived:
			n.Came++
			m := &Message{Event: printable.Text(rec.Event.Name), From: rec.Node, To: n.Head.Node, Version: rec.Version, Bytes: rec.Bytes,
				Received: rec.Time}
			l.came = append(l.came, arrival{sending{m.From, incarnations[m.From], m.To, m.Event, m.Version}, m})
		case trace.KindEnd:
			n.Killed, n.Limit = false, rec.End.Reason == trace.EndLimit
		}
	}
}

// match finds for what came when it was sent: the first for the first, as a node
// that was restarted gets the newest value of an event under its number again.
func (l *loader) match() {
	slices.SortStableFunc(l.came, func(a, b arrival) int { return a.m.Received.Compare(b.m.Received) })
	for _, a := range l.came {
		if s := l.sent[a.sending]; len(s) > 0 {
			s[0].Received = a.m.Received
			l.sent[a.sending] = s[1:]
			continue
		}
		l.all = append(l.all, a.m)
	}
}

// order sorts records, and leaves out those that the filter excludes.
func (v *View) order(f Filter, all []*Message) {
	shown := func(at time.Time) bool {
		t := at.Sub(v.Began)
		return t >= f.Since && (f.Until == 0 || t <= f.Until)
	}
	for _, m := range all {
		event, _ := path.Match(f.Event, m.Event) // it was checked
		if (f.Event == "" || event) && shown(m.At()) && (f.Nodes == nil || slices.Contains(f.Nodes, m.From) || slices.Contains(f.Nodes, m.To)) {
			v.Messages = append(v.Messages, *m)
		} else {
			v.Hidden++
		}
	}
	slices.SortStableFunc(v.Messages, func(a, b Message) int { return a.At().Compare(b.At()) })
	v.Changes = slices.DeleteFunc(v.Changes, func(c Change) bool {
		return !shown(c.At) || f.Nodes != nil && !slices.Contains(f.Nodes, c.Seen)
	})
	slices.SortStableFunc(v.Changes, func(a, b Change) int { return a.At.Compare(b.At) })
	slices.SortFunc(v.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Head.Node, b.Head.Node), cmp.Compare(a.Head.Attempt, b.Head.Attempt))
	})
}
