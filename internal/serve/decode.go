package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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

// scanner reads JSON once from front to back. What is read is decided by the schema, so that nothing is nested
// deeper than that.
type scanner struct {
	b []byte
	i int
}

// decode reads a body into r.
func (c *Config) decode(b []byte, r *request) *fault {
	*r = request{obs: r.obs[:0], sessions: r.sessions[:0]}
	s := &scanner{b: b}
	f := s.object("", func(key string) (known bool, f *fault) { return c.member(s, r, key) }, "observation, observations, session, sessions, reset, sample, seed or extras")
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

// check reports what does not go together.
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

// tooMany is the fault of a batch that is too large.
func (c *Config) tooMany() *fault {
	return &fault{http.StatusRequestEntityTooLarge, codeTooLarge, "", fmt.Sprintf("a request has at most %d observations: send it in parts, or start the server "+
		"with a greater --max-batch", c.maxRows())}
}

// maxRows is the number of observations that a request may have.
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

// names are those of the parts, for a message.
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

// peek is the next byte that is not white space; 0: there is none, or it is one.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		case 0:
			return 1 // which is no JSON either
		default:
			return c
		}
	}
	return 0
}

// want is the fault of a byte that does not come next in JSON.
func (s *scanner) want(what string) *fault {
	if s.peek() == 0 {
		return invalid("", "the request ends at byte %d: want %s", s.i, what)
	}
	return invalid("", "byte %d begins with %s: want %s", s.i, quoted(string(s.b[s.i:min(s.i+16, len(s.b))])), what)
}

// mismatch is the fault of a value of another type.
func (s *scanner) mismatch(want string) *fault {
	var what string
	switch c := s.peek(); {
	case c == '[':
		what = "a list"
	case c == '{':
		what = "an object"
	case c == '"':
		what = "a text"
	case c == '-' || c >= '0' && c <= '9':
		what = "a number"
	case s.word("null"), s.word("true"), s.word("false"):
		what = map[byte]string{'n': "null", 't': "true", 'f': "false"}[c]
	default:
		return s.want(want)
	}
	return invalid("", "it is %s: want %s", what, want)
}

// word reports whether the next bytes are a word.
func (s *scanner) word(w string) bool {
	return len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w
}

// list reads a list, each item by item.
func (s *scanner) list(item func(i int) *fault) *fault {
	if s.peek() != '[' {
		return s.mismatch("a list")
	}
	s.i++
	if s.peek() == ']' {
		s.i++
		return nil
	}
	for i := 0; ; i++ {
		if f := item(i); f != nil {
			return f.within("[" + strconv.Itoa(i) + "]")
		}
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			return nil
		default:
			return s.want("a comma or ] after an item of a list")
		}
	}
}

// maxKeys bounds the members of an object.
const maxKeys = 1 << 16

// object reads an object. member reads the value of a key, or reports that it does not know it.
func (s *scanner) object(parts string, member func(key string) (known bool, f *fault), known string) *fault {
	if s.peek() != '{' {
		if parts != "" {
			return s.mismatch("an object with the parts " + parts)
		}
		return s.mismatch(`an object such as {"observation": ...}`)
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		return nil
	}
	var first [8]string
	keys := first[:0]
	for {
		key, f := s.text()
		if f != nil {
			return f
		}
		if s.peek() != ':' {
			return s.want("a colon after " + quoted(key))
		}
		s.i++
		if slices.Contains(keys, key) {
			return invalid("", "the key %s is there twice", quoted(key))
		}
		if keys = append(keys, key); len(keys) > maxKeys {
			return invalid("", "an object has more than %d keys", maxKeys)
		}
		if ok, f := member(key); f != nil {
			return f
		} else if !ok {
			return invalid("", "unknown key %s: want %s", quoted(key), known)
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return s.want("a comma or } after a member of an object")
		}
	}
}

// text reads a string.
func (s *scanner) text() (string, *fault) {
	if s.peek() != '"' {
		return "", s.mismatch("a text")
	}
	plain := true
	for i := s.i + 1; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c >= utf8.RuneSelf:
			plain = false
		case c == '"':
			raw := s.b[s.i : i+1]
			s.i = i + 1
			if plain {
				return string(raw[1 : len(raw)-1]), nil
			}
			var out string
			if json.Unmarshal(raw, &out) != nil {
				return "", invalid("", "%s is no text of JSON", quoted(string(raw)))
			}
			return out, nil
		}
	}
	return "", invalid("", "the request ends in a text that begins at byte %d", s.i)
}

// maxSession bounds the name of a session, in bytes.
const maxSession = 128

// session reads the name of a session and appends it.
func (s *scanner) session(r *request) *fault {
	name, f := s.text()
	if f != nil {
		return f
	}
	if name == "" || len(name) > maxSession {
		return invalid("", "a name of %d bytes: want 1 to %d", len(name), maxSession)
	}
	r.sessions = append(r.sessions, name)
	return nil
}

// boolean reads true or false.
func (s *scanner) boolean() (bool, *fault) {
	s.peek()
	switch {
	case s.word("true"):
		s.i += 4
		return true, nil
	case s.word("false"):
		s.i += 5
		return false, nil
	}
	return false, s.mismatch("true or false")
}

// token reads the bytes of a number, of which the form is checked.
func (s *scanner) token() ([]byte, *fault) {
	c := s.peek()
	if c != '-' && (c < '0' || c > '9') {
		if s.word("NaN") || s.word("Infinity") {
			return nil, invalid("", "it is not finite: the policy takes finite numbers only: look where the observation is made")
		}
		return nil, s.mismatch("a number")
	}
	from := s.i
	if c == '-' {
		s.i++
		if s.word("Infinity") {
			return nil, invalid("", "it is not finite: the policy takes finite numbers only: look where the observation is made")
		}
	}
	zero := s.i < len(s.b) && s.b[s.i] == '0'
	n := s.digits()
	ok := n > 0 && (n == 1 || !zero)
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		ok = s.digits() > 0 && ok
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		if s.i++; s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		ok = s.digits() > 0 && ok
	}
	raw := s.b[from:s.i]
	if !ok {
		return nil, invalid("", "%s is no number of JSON", quoted(string(s.b[from:min(s.i+1, len(s.b))])))
	}
	return raw, nil
}

// digits skips digits and returns how many they are.
func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - from
}

// number reads a number that a float32 holds.
func (s *scanner) number() (float32, *fault) {
	text, f := s.token()
	if f != nil {
		return 0, f
	}
	v, err := strconv.ParseFloat(string(text), 32)
	if err != nil { // the form is right
		return 0, invalid("", "%s is greater than a float32 can be, 3.4e38", quoted(string(text)))
	}
	return float32(v), nil
}

// unsigned reads a whole number of 64 bits.
func (s *scanner) unsigned() (uint64, *fault) {
	text, f := s.token()
	if f != nil {
		return 0, f
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		what := "want a whole number from 0 on"
		if errors.Is(err, strconv.ErrRange) {
			what = "want less than 2^64"
		}
		return 0, invalid("", "%s: %s", quoted(string(text)), what)
	}
	return v, nil
}
