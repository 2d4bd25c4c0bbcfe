package traceview

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// The picture's measures, in pixels.
const (
	left      = 96 // for the times
	laneWidth = 220
	top       = 92
	leastGap  = 7  // between two points of time
	mostGap   = 40 // a longer pause is not drawn longer
	labelGap  = 13 // between two labels on one pair of lanes
	bottom    = 30
)

// colours tell the events apart; there are more events than colours.
var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#e07b00", "#17a2b8", "#8c564b", "#c2185b", "#5f6b00", "#455a64"}

// SVG draws a sequence diagram of the first limit messages: a lane for each node,
// time running down. The distance between two points grows with the logarithm of
// the time between them. The file needs nothing else.
func (v *View) SVG(w io.Writer, limit int) error {
	d := v.layout(limit)
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="system-ui, sans-serif" font-size="11">`+"\n", d.width, d.height)
	fmt.Fprintf(b, "<title>job %s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", text(v.Job))
	d.heads(b)
	d.times(b)
	d.messages(b)
	d.changes(b)
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

// diagram is where everything is.
type diagram struct {
	v             *View
	shown         []Message
	lanes         []int         // node ids
	y             map[int64]int // of each point of time, by ns
	points        []int64
	events        []string
	width, height int
}

func (v *View) layout(limit int) *diagram {
	d := &diagram{v: v, shown: v.Messages[:min(limit, len(v.Messages))], y: map[int64]int{}}
	end := time.Time{}
	for _, m := range d.shown {
		for _, t := range []time.Time{m.Sent, m.Received} {
			if !t.IsZero() {
				d.points = append(d.points, t.UnixNano())
				end = later(end, t)
			}
		}
		for _, id := range []int{m.From, m.To} {
			if !slices.Contains(d.lanes, id) {
				d.lanes = append(d.lanes, id)
			}
		}
		if !slices.Contains(d.events, m.Event) {
			d.events = append(d.events, m.Event)
		}
	}
	for _, c := range v.Changes {
		if len(d.shown) == len(v.Messages) || !c.At.After(end) {
			d.points = append(d.points, c.At.UnixNano())
			for _, id := range []int{c.Seen, c.Node} {
				if !slices.Contains(d.lanes, id) {
					d.lanes = append(d.lanes, id)
				}
			}
		}
	}
	slices.Sort(d.lanes)
	slices.Sort(d.events)
	slices.Sort(d.points)
	d.points = slices.Compact(d.points)
	y := top + 20
	for i, p := range d.points {
		if i > 0 {
			y += gap(time.Duration(p - d.points[i-1]))
		}
		d.y[p] = y
	}
	d.width = left + max(len(d.lanes), 2)*laneWidth
	d.height = y + bottom
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// gap is how far apart two points of time are drawn.
func gap(t time.Duration) int {
	return min(leastGap+int(4*math.Log10(1+float64(t)/float64(10*time.Microsecond))), mostGap)
}

func (d *diagram) x(node int) int {
	return left + laneWidth/2 + slices.Index(d.lanes, node)*laneWidth
}

func (d *diagram) colour(event string) string {
	return colours[slices.Index(d.events, event)%len(colours)]
}

// heads draws the title, the legend and the lanes.
func (d *diagram) heads(w io.Writer) {
	more := fmt.Sprintf(", %d messages", len(d.shown))
	if len(d.shown) < len(d.v.Messages) {
		more = fmt.Sprintf(", the first %d of %d messages", len(d.shown), len(d.v.Messages))
	}
	if d.v.Hidden > 0 {
		more += fmt.Sprintf(", %d not asked for", d.v.Hidden)
	}
	fmt.Fprintf(w, "<text x=\"12\" y=\"22\" font-size=\"15\">job %s%s</text>\n", text(d.v.Job), text(more))
	x := 12
	for i, e := range d.events {
		if x > d.width-140 || i >= 3*len(colours) {
			fmt.Fprintf(w, "<text x=\"%d\" y=\"42\">and %d more</text>\n", x, len(d.events)-i)
			break
		}
		fmt.Fprintf(w, "<text x=\"%d\" y=\"42\" fill=\"%s\">\u25cf %s</text>\n", x, d.colour(e), text(e))
		x += 26 + 7*len(e)
	}
	for _, id := range d.lanes {
		x := d.x(id)
		fmt.Fprintf(w, "<rect x=\"%d\" y=\"56\" width=\"110\" height=\"24\" rx=\"4\" fill=\"#eef2f6\" stroke=\"#90a4b4\"/>\n", x-55)
		fmt.Fprintf(w, "<text x=\"%d\" y=\"72\" text-anchor=\"middle\" font-weight=\"600\">node %d</text>\n", x, id)
		fmt.Fprintf(w, "<line x1=\"%d\" y1=\"80\" x2=\"%d\" y2=\"%d\" stroke=\"#b0bec5\"/>\n", x, x, d.height-12)
	}
}

// times writes the times at the left, as many as there is room for.
func (d *diagram) times(w io.Writer) {
	last := 0
	for _, p := range d.points {
		if y := d.y[p]; y >= last+12 {
			last = y
			fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#607d8b\">%s</text>\n", left-8, y+4,
				ms(time.Duration(p-d.v.Began.UnixNano())))
		}
	}
}

func ms(t time.Duration) string { return fmt.Sprintf("%.3f ms", float64(t)/1e6) }

// messages draws an arrow for each message; one that did not arrive ends in a
// cross, one whose sending is not known begins at the receiver.
func (d *diagram) messages(w io.Writer) {
	labelled := map[[2]int]int{}
	for i := range d.shown {
		m := &d.shown[i]
		x1, x2, colour := d.x(m.From), d.x(m.To), d.colour(m.Event)
		y1, y2 := d.y[m.At().UnixNano()], d.y[m.At().UnixNano()]
		if !m.Sent.IsZero() && !m.Received.IsZero() {
			y2 = d.y[m.Received.UnixNano()]
		}
		dir := 1
		if x2 < x1 {
			dir = -1
		}
		fmt.Fprintf(w, "<g stroke=\"%s\" fill=\"none\"><title>%s %d: node %d to node %d, %d bytes, at %s, %s</title>", colour,
			text(m.Event), m.Version, m.From, m.To, m.Bytes, ms(m.At().Sub(d.v.Began)), text(d.v.took(m)))
		switch {
		case m.Received.IsZero(): // a cross before the lane
			x2 -= dir * 16
			fmt.Fprintf(w, "<path d=\"M%d %dL%d %d\" stroke-dasharray=\"4 4\"/><path d=\"M%d %dl8 8m-8 0l8 -8\"/>", x1, y1, x2, y2, x2-4, y2-4)
		case m.Sent.IsZero():
			fmt.Fprintf(w, "<path d=\"M%d %dL%d %d\" stroke-dasharray=\"2 3\"/>", x2-dir*50, y2, x2, y2)
			fmt.Fprintf(w, "<path d=\"M%d %dl%d -4l0 8z\" fill=\"%s\"/>", x2, y2, -dir*7, colour)
		default:
			fmt.Fprintf(w, "<path d=\"M%d %dL%d %d\"/>", x1, y1, x2, y2)
			angle := math.Atan2(float64(y2-y1), float64(x2-x1)) * 180 / math.Pi
			fmt.Fprintf(w, "<path d=\"M0 0l-7 -4l0 8z\" fill=\"%s\" transform=\"translate(%d %d) rotate(%.1f)\"/>", colour, x2, y2, angle)
		}
		fmt.Fprint(w, "</g>\n")
		// The label stands near the sender, in its half of the way, if it has room.
		lane := [2]int{min(x1, x1+dir*laneWidth), dir}
		if y, ok := labelled[lane]; ok && y1-4 < y+labelGap {
			continue
		}
		labelled[lane] = y1 - 4
		anchor := "start"
		if dir < 0 {
			anchor = "end"
		}
		slope := float64(y2-y1) / math.Max(math.Abs(float64(x2-x1)), 1)
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"%s\" fill=\"%s\" font-size=\"10\" stroke=\"#fff\" stroke-width=\"3\" "+
			"paint-order=\"stroke\">%s %d</text>\n",
			x1+dir*8, float64(y1)-3+slope*8, anchor, colour, text(short(m.Event)), m.Version)
	}
}

// changes marks the changes of other nodes on a node's lane.
func (d *diagram) changes(w io.Writer) {
	for _, c := range d.v.Changes {
		y, ok := d.y[c.At.UnixNano()]
		if !ok {
			continue
		}
		colour := map[string]string{"joined": "#2e7d32", "left": "#607d8b"}[c.Change]
		if colour == "" {
			colour = "#b71c1c"
		}
		x := d.x(c.Seen)
		fmt.Fprintf(w, "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\"><title>%s: node %d %s %s</title></circle>\n", x, y, colour,
			ms(c.At.Sub(d.v.Began)), c.Node, text(c.Change), text(c.Error))
	}
}

// short returns a name that fits beside a lane.
func short(s string) string {
	const room = 22
	if r := []rune(s); len(r) > room {
		return string(r[:room-1]) + "\u2026"
	}
	return s
}

// text escapes text between tags.
func text(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(strings.ToValidUTF8(s, "\uFFFD"))) // to memory
	return b.String()
}
