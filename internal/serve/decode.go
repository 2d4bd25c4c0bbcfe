package serve

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// request is a decoded body of POST /v1/act. Its memory is used again.
type request struct {
	obs      []float32 // rows x dim
	rows     int
	batch    bool // it had observations, and its answer has actions
	sample   bool
	seeded   bool
	seed     uint64
	extras   bool
	reset    bool
	sessions []string // none, or one for each row
}

// decode reads a body into r.
func (c *Config) decode(b []byte, r *request) *fault {
	*r = request{obs: r.obs[:0], sessions: r.sessions[:0]}
	s := &scanner{b: b}
	f := s.object("", func(key string) (known bool, f *fault) { return c.member(s, r, key) }, "observation, observations, session, "+
		"sessions, reset, sample, seed or extras")
	if f == nil && s.peek() != 0 {
		f = s.want("the end of the request after its object")
	}
	if f == nil {
		f = r.check()
	}
	return f
}

// member reads the value of a member of the request.
func (c *Config) member(s *scanner, r *request, key string) (bool, *fault) {
	var f *fault
	switch key {
	case "observation":
		if r.rows > 0 {
			return true, invalid("", "observation and observations: give one of them")
		}
		f = c.row(s, r)
	case "observations":
		if r.rows > 0 {
			return true, invalid("", "observation and observations: give one of them")
		}
		r.batch = true
		f = s.list(func(int) *fault { return c.row(s, r) })
		if f == nil && r.rows == 0 {
			f = invalid("", "it is empty: want at least one observation")
		}
	case "session":
		if len(r.sessions) > 0 {
			return true, invalid("", "session and sessions: give one of them")
		}
		f = s.session(r)
	case "sessions":
		if len(r.sessions) > 0 {
			return true, invalid("", "session and sessions: give one of them")
		}
		f = s.list(func(i int) *fault {
			if i >= c.MaxBatch {
				return c.tooMany()
			}
			return s.session(r)
		})
	case "reset":
		r.reset, f = s.boolean()
	case "sample":
		r.sample, f = s.boolean()
	case "extras":
		r.extras, f = s.boolean()
	case "seed":
		r.seeded = true
		r.seed, f = s.unsigned()
	default:
		return false, nil
	}
	if f != nil {
		f = f.within(key)
	}
	return true, f
}

// check reports parts of a request that do not fit together.
func (r *request) check() *fault {
	switch {
	case r.rows == 0:
		return invalid("observation", "it is missing: give observation, or a list of observations")
	case r.seeded && !r.sample:
		return invalid("seed", `it has no effect without "sample": true: give both, or leave it out`)
	case len(r.sessions) > 0 && len(r.sessions) != r.rows:
		return invalid("sessions", "%d sessions of %d observations: want one for each", len(r.sessions), r.rows)
	}
	return nil
}

// tooMany returns the fault of a batch that is too large.
func (c *Config) tooMany() *fault {
	return &fault{http.StatusRequestEntityTooLarge, codeTooLarge, "", fmt.Sprintf("a request has at most %d observations: send it in "+
		"parts, or start the server "+
		"with a greater --max-batch", c.maxRows())}
}

// maxRows returns the number of observations that a request may have.
func (c *Config) maxRows() int { return max(1, min(c.MaxBatch, maxValues/c.dim())) }

// row reads an observation and appends it.
func (c *Config) row(s *scanner, r *request) *fault {
	if r.rows >= c.maxRows() {
		return c.tooMany()
	}
	at, dim := len(r.obs), c.dim()
	if at+dim <= cap(r.obs) {
		r.obs = r.obs[:at+dim]
	} else {
		r.obs = append(r.obs, make([]float32, dim)...)
	}
	row := r.obs[at:]
	r.rows++
	if c.Parts[0].Name == "" {
		return c.Parts[0].read(s, row)
	}
	if s.peek() == '[' && c.tuple() {
		return c.items(s, row)
	}
	seen := make([]bool, len(c.Parts))
	f := s.object(c.names(), func(key string) (bool, *fault) {
		for i := range c.Parts {
			p := &c.Parts[i]
			if p.Name != key {
				continue
			}
			seen[i] = true
			f := p.read(s, row[p.From:p.To])
			if f != nil {
				f = f.within(key)
			}
			return true, f
		}
		return false, nil
	}, c.names())
	for i := range seen {
		if f == nil && !seen[i] {
			return invalid(c.Parts[i].Name, "this part is missing: the observation has the parts %s", c.names())
		}
	}
	return f
}

// items reads the parts of a Tuple, which stand in a list.
func (c *Config) items(s *scanner, row []float32) *fault {
	n := 0
	f := s.list(func(i int) *fault {
		if n++; n > len(c.Parts) {
			return invalid("", "the observation has %d parts, and this is one more", len(c.Parts))
		}
		return c.Parts[i].read(s, row[c.Parts[i].From:c.Parts[i].To])
	})
	if f == nil && n < len(c.Parts) {
		return invalid("", "%d parts, want %d: %s", n, len(c.Parts), c.names())
	}
	return f
}

// names returns the names of the parts, for a message.
func (c *Config) names() string {
	var names []string
	for i := range c.Parts[:min(len(c.Parts), 16)] {
		names = append(names, strconv.Quote(c.Parts[i].Name))
	}
	if len(c.Parts) > len(names) {
		names = append(names, fmt.Sprintf("and %d more", len(c.Parts)-len(names)))
	}
	return strings.Join(names, ", ")
}

// read reads the values of a part to dst.
func (p *Part) read(s *scanner, dst []float32) *fault {
	if p.OneHot {
		clear(dst)
	}
	w := writer{part: p, dst: dst}
	return w.nested(s, p.Shape)
}

// writer writes values of a part where the policy wants them.
type writer struct {
	part  *Part
	dst   []float32
	value int // number of the next value
	at    int // its place in dst
}

// nested reads lists of a shape.
func (w *writer) nested(s *scanner, shape []int) *fault {
	if len(shape) == 0 {
		return w.one(s)
	}
	if c := s.peek(); c != '[' {
		return s.mismatch(fmt.Sprintf("a list of %d", shape[0]))
	}
	n := 0
	f := s.list(func(int) *fault {
		if n++; n > shape[0] {
			return invalid("", "this list has more than the %d values of its shape %v", shape[0], w.part.Shape)
		}
		if len(shape) == 1 {
			return w.one(s)
		}
		return w.nested(s, shape[1:])
	})
	if f == nil && n < shape[0] {
		return invalid("", "a list of %d, want %d: the shape is %v", n, shape[0], w.part.Shape)
	}
	return f
}

// one reads one value.
func (w *writer) one(s *scanner) *fault {
	v, f := s.number()
	if f != nil {
		return f
	}
	p := w.part
	if p.N == nil {
		if p.Kind == "MultiBinary" && v != 0 && v != 1 {
			return invalid("", "%v: want 0 or 1", v)
		}
		w.dst[w.at] = v
		w.at++
		return nil
	}
	n := p.N[w.value]
	if v < float32(p.Start) || v > float32(p.Start+n-1) || v != float32(math.Trunc(float64(v))) {
		return invalid("", "%v: want a whole number from %d to %d", v, p.Start, p.Start+n-1)
	}
	w.value++
	if !p.OneHot {
		w.dst[w.at] = v
		w.at++
		return nil
	}
	w.dst[w.at+int(v)-p.Start] = 1
	w.at += n
	return nil
}
