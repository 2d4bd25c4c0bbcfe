// Package printable makes text from outside safe to print: text of an unauthenticated client, a peer, a
// server, another program or a file.
//
//	no.Reason = printable.Cut(no.Reason, maxReason) // where it comes in
//	out := printable.Writer(os.Stderr)              // where it goes out
//
// [Text], [Cut], [Block] and [Error] are for the border at which text comes in, so that
// everything behind it can print the text. [Lines], [Writer] and [JSON] are the second net,
// where lines go out.
//
// A character is printable if [unicode.IsPrint] reports it: letters, marks, numbers,
// punctuation, symbols and the space. All others are written as [strconv.Quote] writes
// them, such as \x1b: the control characters C0, DEL and C1, bidirectional marks,
// embeddings, overrides and isolates, line and paragraph separators, other invisible
// characters, and bytes that are not UTF-8. Quotes and backslashes stay as they are, so
// text that is printable is its own result, and so is every result.
//
// All functions are pure and safe for concurrent use.
package printable

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MaxText bounds a Text in bytes: a name or a sentence, but not a screen.
	MaxText = 512
	// MaxError bounds the text of an Error in bytes: a chain of errors with what to do.
	MaxError = 1 << 10
)

// ellipsis ends a cut text.
const ellipsis = "..."

// indent begins the lines of a Block but the first.
const indent = "    "

// Is reports whether all characters of s are printable.
func Is(s string) bool { return all(s, "") }

// Text returns s as one printable line of at most [MaxText] bytes.
func Text(s string) string { return Cut(s, MaxText) }

// Cut returns s as one printable line of at most limit bytes, which ends with "..." if
// that is not all of it. limit is at least 3.
func Cut(s string, limit int) string {
	if len(s) <= limit && Is(s) {
		return s
	}
	var b builder
	for len(s) > 0 && b.fits(limit) {
		n := next(s)
		b.add(escape(s[:n]))
		s = s[n:]
	}
	return b.cut(limit)
}

// Block returns s with printable lines, of at most limit bytes in all. Lines after the
// first begin with white space, so none of them passes for a line of the program that
// prints s. Tabs stay. limit is at least 3.
func Block(s string, limit int) string {
	var b builder
	for len(s) > 0 && b.fits(limit) {
		n := next(s)
		c := s[:n]
		s = s[n:]
		switch {
		case c == "\t":
			b.add(c)
		case c != "\n":
			b.add(escape(c))
		case s == "" || s[0] == ' ' || s[0] == '\t' || s[0] == '\n':
			b.add(c)
		default:
			b.add(c + indent)
		}
	}
	return b.cut(limit)
}

// Lines returns s with printable lines. Newlines and tabs stay, and nothing is cut.
func Lines(s string) string {
	if all(s, "\n\t") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		n := next(s)
		if c := s[:n]; c == "\n" || c == "\t" {
			b.WriteString(c)
		} else {
			b.WriteString(escape(c))
		}
		s = s[n:]
	}
	return b.String()
}

// Error returns err with a text that is one printable line of at most [MaxError] bytes. It
// wraps err, and is err itself if nothing has to be changed.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	safe := Cut(text, MaxError)
	if safe == text {
		return err
	}
	return &safeError{safe, err}
}

type safeError struct {
	text string
	err  error
}

func (e *safeError) Error() string { return e.text }
func (e *safeError) Unwrap() error { return e.err }

// JSON returns a text of JSON, of one value or several, in which characters that are not
// printable are escaped. It stands for the same values; bytes that are not UTF-8 become
// U+FFFD, which they are to a reader of JSON anyway. It is b itself if nothing has to be
// changed.
func JSON(b []byte) []byte {
	plain := true
	for _, c := range b {
		plain = plain && c < 0x7f
	}
	if plain { // control characters are escaped in JSON already
		return b
	}
	out := make([]byte, 0, len(b)+len(b)/8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, `\ufffd`...)
		case r < ' ' || unicode.IsPrint(r):
			out = append(out, b[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = appendEscaped(appendEscaped(out, high), low)
		default:
			out = appendEscaped(out, r)
		}
		b = b[n:]
	}
	return out
}

// appendEscaped appends a code unit as JSON escapes it.
func appendEscaped(dst []byte, unit rune) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[unit>>12&0xf], digits[unit>>8&0xf], digits[unit>>4&0xf], digits[unit&0xf])
}

// Writer returns a writer of the [Lines] of what is written, each call of Write by itself,
// to w.
func Writer(w io.Writer) io.Writer {
	return writer{w, func(p []byte) []byte {
		if s := string(p); !all(s, "\n\t") {
			return []byte(Lines(s))
		}
		return p
	}}
}

// JSONWriter returns a writer of the [JSON] of what is written, each call of Write by
// itself, to w.
func JSONWriter(w io.Writer) io.Writer { return writer{w, JSON} }

type writer struct {
	w    io.Writer
	safe func([]byte) []byte
}

// Write reports a short write as nothing written, as its bytes are not those of p.
func (w writer) Write(p []byte) (int, error) {
	if _, err := w.w.Write(w.safe(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// all reports whether all characters of s are printable or in besides.
func all(s, besides string) bool {
	for len(s) > 0 {
		n := next(s)
		if !isPrintable(s[:n]) && !strings.Contains(besides, s[:n]) {
			return false
		}
		s = s[n:]
	}
	return true
}

// next returns the length of the first character of s, which is not empty.
func next(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// isPrintable judges one character.
func isPrintable(c string) bool {
	r, n := utf8.DecodeRuneInString(c)
	return unicode.IsPrint(r) && (r != utf8.RuneError || n > 1)
}

// escape returns one character as it is printed.
func escape(c string) string {
	if isPrintable(c) {
		return c
	}
	q := strconv.Quote(c)
	return q[1 : len(q)-1]
}

// builder gathers characters, and knows where to cut them.
type builder struct {
	text []byte
	ends []int // of the last characters: one of them leaves room for the ellipsis
}

// fits reports whether the text is not longer than limit yet.
func (b *builder) fits(limit int) bool { return len(b.text) <= limit }

func (b *builder) add(c string) {
	if b.ends = append(b.ends, len(b.text)); len(b.ends) > len(ellipsis)+1 {
		b.ends = b.ends[1:]
	}
	b.text = append(b.text, c...)
}

// cut returns the text, if it is not longer than limit, or as much of it as leaves room for
// the ellipsis. A blank line does not begin with it.
func (b *builder) cut(limit int) string {
	if b.fits(limit) {
		return string(b.text)
	}
	end := 0
	for _, e := range b.ends {
		if e <= limit-len(ellipsis) {
			end = e
		}
	}
	return strings.TrimRight(string(b.text[:end]), "\n") + ellipsis
}
