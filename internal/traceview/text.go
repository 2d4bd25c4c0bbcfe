package traceview

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Text writes one line for each node's file, message and change.
func (v *View) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "job %s from %s\n", v.Job, v.Began.UTC().Format("2006-01-02 15:04:05.000000 MST"))
	for _, n := range v.Nodes {
		fmt.Fprintf(b, "node %d  %s: %d sent, %d received, to %s%s\n", n.Head.Node, filepath.Base(n.File), n.Sent, n.Came, v.time(n.Last),
			n.note())
	}
	width := len("EVENT")
	for _, m := range v.Messages {
		width = max(width, len(m.Event))
	}
	fmt.Fprintf(b, "%12s  %4s    %-4s  %-*s  %8s  %10s  %s\n", "TIME", "FROM", "TO", width, "EVENT", "VERSION", "BYTES", "TOOK")
	changes := v.Changes
	for i := range v.Messages {
		m := &v.Messages[i]
		for len(changes) > 0 && changes[0].At.Before(m.At()) {
			v.change(b, changes[0])
			changes = changes[1:]
		}
		fmt.Fprintf(b, "%12s  %4d -> %-4d  %-*s  %8d  %10d  %s\n", v.time(m.At()), m.From, m.To, width, m.Event, m.Version, m.Bytes, v.took(m))
	}
	for _, c := range changes {
		v.change(b, c)
	}
	if v.Hidden > 0 {
		fmt.Fprintf(b, "%d other messages are not shown\n", v.Hidden)
	}
	return b.Flush()
}

func (v *View) time(t time.Time) string { return fmt.Sprintf("%.6f", t.Sub(v.Began).Seconds()) }

func (v *View) change(w io.Writer, c Change) {
	fmt.Fprintf(w, "%12s  node %d: node %d %s", v.time(c.At), c.Seen, c.Node, c.Change)
	if c.Error != "" {
		text, _, _ := strings.Cut(c.Error, "\n")
		fmt.Fprintf(w, ": %s", printable.Text(text))
	}
	fmt.Fprintln(w)
}

// took is how long a message was on its way, or what is known instead.
func (v *View) took(m *Message) string {
	switch {
	case m.Sent.IsZero():
		return "sent before or beside the trace"
	case m.Received.IsZero():
		return v.fate(m)
	}
	d := m.Received.Sub(m.Sent)
	if d < 0 {
		return fmt.Sprintf("%.3f ms: their clocks differ", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3f ms", float64(d)/1e6)
}

// fate describes a message that is in no receiver's file.
func (v *View) fate(m *Message) string {
	fate := "the receiver has no trace"
	for _, n := range v.Nodes {
		switch {
		case n.Head.Node != m.To:
		case n.Last.Before(m.Sent):
			fate = "the receiver's trace had ended"
		default:
			return "not received: dropped, replaced by a newer one, or lost"
		}
	}
	return fate
}

// note returns a note about a file for its reader.
func (n *Node) note() string {
	switch {
	case n.Limit:
		return " (the file has reached its limit: what came later is missing)"
	case n.Killed:
		return " (the node has not ended the file: it was killed, or runs)"
	}
	return ""
}
