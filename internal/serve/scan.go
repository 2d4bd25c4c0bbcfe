package serve

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// scanner reads JSON once from front to back. The schema decides which value comes next, so that values nest no deeper
// than the schema.
type scanner struct {
	b []byte
	i int
}

// peek returns the next byte that is not white space; 0: there is none, or it is one.
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

// want returns the fault of a byte that does not come next in JSON.
func (s *scanner) want(what string) *fault {
	if s.peek() == 0 {
		return invalid("", "the request ends at byte %d: want %s", s.i, what)
	}
	return invalid("", "byte %d begins with %s: want %s", s.i, quoted(string(s.b[s.i:min(s.i+16, len(s.b))])), what)
}

// mismatch returns the fault of a value of another type.
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
			return invalid("", "the key %s occurs twice", quoted(key))
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
