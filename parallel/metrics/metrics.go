package metrics

import (
	"bufio"
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Sample is one number of one metric.
type Sample struct {
	Name   string   `json:"n"`
	Labels []string `json:"l,omitempty"` // name, value, name, value ...
	Value  float64  `json:"v"`
}

// Label returns the value of a label, or "".
func (s Sample) Label(name string) string {
	for i := 0; i+1 < len(s.Labels); i += 2 {
		if s.Labels[i] == name {
			return s.Labels[i+1]
		}
	}
	return ""
}

// With returns s with more labels before its own.
func (s Sample) With(labels ...string) Sample {
	s.Labels = slices.Concat(labels, s.Labels)
	return s
}

// ContentType is that of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes the samples in Prometheus' text format, in the order of [Table]: a
// sample whose name is not there is left out.
func Write(w io.Writer, samples []Sample) error { return WriteOf(w, Table(), samples) }

// WriteOf is Write for a table of a program's own. The samples of a [Histogram] have the names of its buckets, sum
// and count.
func WriteOf(w io.Writer, table []Desc, samples []Sample) error {
	byName := map[string][]Sample{}
	for _, s := range samples {
		byName[s.Name] = append(byName[s.Name], s)
	}
	b := bufio.NewWriter(w)
	var line []byte
	for _, d := range table {
		of := byName[d.Name]
		if d.Type == Histogram {
			of = slices.Concat(byName[d.Name+"_bucket"], byName[d.Name+"_sum"], byName[d.Name+"_count"])
		}
		if len(of) == 0 {
			continue
		}
		line = append(line[:0], "# HELP "...)
		line = append(line, d.Name...)
		line = append(line, ' ')
		line = append(line, helpEscapes.Replace(d.Help)...)
		line = append(line, "\n# TYPE "...)
		line = append(line, d.Name...)
		line = append(line, ' ')
		line = append(line, d.Type...)
		line = append(line, '\n')
		for _, s := range of {
			line = s.append(line)
		}
		_, _ = b.Write(line) // Flush returns its error
	}
	return b.Flush()
}

// The characters that the format escapes: in a help text, and in a label's value.
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// append appends the sample as one line.
func (s Sample) append(line []byte) []byte {
	line = append(line, s.Name...)
	for i := 0; i+1 < len(s.Labels); i += 2 {
		line = append(line, ","[:min(i, 1)]...)
		if i == 0 {
			line = append(line, '{')
		}
		line = append(line, s.Labels[i]...)
		line = append(line, `="`...)
		line = append(line, labelEscapes.Replace(strings.ToValidUTF8(s.Labels[i+1], "\uFFFD"))...)
		line = append(line, '"')
	}
	if len(s.Labels) > 1 {
		line = append(line, '}')
	}
	line = append(line, ' ')
	line = appendValue(line, s.Value)
	return append(line, '\n')
}

func appendValue(line []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(line, "+Inf"...)
	case math.IsInf(v, -1):
		return append(line, "-Inf"...)
	case v == math.Trunc(v) && math.Abs(v) < 1<<53: // 1200000, not 1.2e+06
		return strconv.AppendFloat(line, v, 'f', -1, 64)
	}
	return strconv.AppendFloat(line, v, 'g', -1, 64)
}

// Handler serves what gather returns.
func Handler(gather func(ctx context.Context) []Sample) http.Handler {
	return HandlerOf(Table(), gather)
}

// HandlerOf is Handler for a table of a program's own.
func HandlerOf(table []Desc, gather func(ctx context.Context) []Sample) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ContentType)
		_ = WriteOf(w, table, gather(r.Context())) // the caller has gone
	})
}
