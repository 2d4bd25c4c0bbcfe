package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestTextIsOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		`plain, "quoted" \ and größe ✓ 日本`: `plain, "quoted" \ and größe ✓ 日本`,
		"\x1b[2J\x1b[1;1Hjob finished OK":  `\x1b[2J\x1b[1;1Hjob finished OK`,
		"a\nb\r\nc\td\x00\x7f":             `a\nb\r\nc\td\x00\x7f`,
		"\u0080\u0085\u009b\u009f":         `\u0080\u0085\u009b\u009f`,
		"\x9b2J":                           `\x9b2J`,
		"\u202a\u202e\u2066\u2069":         `\u202a\u202e\u2066\u2069`,
		"\u200e\u200f\u061c":               `\u200e\u200f\u061c`,
		"\u2028\u2029\u00a0\ufeff":         `\u2028\u2029\u00a0\ufeff`,
		"\U000e0001\ue000":                 `\U000e0001\ue000`,
		"\ufffd\xff\xed\xa0\x80":           "\ufffd" + `\xff\xed\xa0\x80`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestCutLeavesWholeCharacters(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"abcdef", 6, "abcdef"},
		{"abcdefg", 6, "abc..."},
		{"abcdé", 6, "abcdé"},
		{"abcédef", 6, "abc..."},
		{"abéédef", 6, "ab..."},
		{"a\x1bcdef", 8, `a\x1b...`},
		{"ab\x1bcdef", 8, `ab...`},
		{"\u009b\u009b", 8, "..."},
		{"abcd", 3, "..."},
	} {
		if got := Cut(c.in, c.limit); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.in, c.limit, got, c.want)
		}
	}
	if got := len(Text(strings.Repeat("x", 1<<20))); got != MaxText {
		t.Errorf("%d bytes", got)
	}
}

func TestBlockLinesAreIndented(t *testing.T) {
	for in, want := range map[string]string{
		"panic: x\n\ngoroutine 1:\n\tmain.f()\n": "panic: x\n\n    goroutine 1:\n\tmain.f()\n",
		"a\nditask: job finished OK":             "a\n    ditask: job finished OK",
		"a\r\n\x1b[1Ab\u2028c":                   "a\\r\n    \\x1b[1Ab\\u2028c",
	} {
		if got := Block(in, 1000); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	for in, want := range map[string]string{"abc\ndefghij": "abc...", "abc\n\n\ndefghi": "abc...", "a\n bcdefghijkl": "a\n bc..."} {
		if got := Block(in, 8); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestErrorWraps(t *testing.T) {
	if Error(nil) != nil || Error(io.EOF) != io.EOF { //nolint:errorlint // the error itself
		t.Error("an error that is printable is not itself")
	}
	hostile := &fs.PathError{Op: "open", Path: "x\nditask: job finished OK", Err: fs.ErrNotExist}
	err := Error(hostile)
	if got, want := err.Error(), `open x\nditask: job finished OK: file does not exist`; got != want {
		t.Errorf("got %q", got)
	}
	if _, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, fs.ErrNotExist) {
		t.Error("it does not wrap the error")
	}
}

func TestWritersKeepLines(t *testing.T) {
	var b bytes.Buffer
	text := "a\x7f\tb\nc\u009b\n"
	if n, err := io.WriteString(Writer(&b), text); n != len(text) || err != nil || b.String() != "a\\x7f\tb\nc\\u009b\n" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
	b.Reset()
	text = `{"msg":"` + "\u009b\U000e0001\xff" + `"}` + "\n"
	if n, err := io.WriteString(JSONWriter(&b), text); n != len(text) || err != nil ||
		b.String() != `{"msg":"\u009b\udb40\udc01\ufffd"}`+"\n" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
	if n, err := Writer(failing{}).Write([]byte("x")); n != 0 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d, %v", n, err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// forbidden are the characters that move a terminal's cursor, start its sequences or turn
// the direction of a line, whatever package unicode says of them.
func forbidden(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
		r == 0x200e || r == 0x200f || r == 0x061c || r == 0x2028 || r == 0x2029
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b[2J\x1b[Hjob finished OK", "a\nb\n\tc\n\n d\n", "\u009b\u202e\u2028\u061c",
		"\x9b\xff", "日本 👩‍💻", strings.Repeat("é\n", 40)} {
		f.Add(s, uint16(20))
	}
	f.Fuzz(func(t *testing.T, s string, n uint16) {
		limit := 3 + int(n)
		check := func(name, besides, got string, again func(string) string) {
			if !utf8.ValidString(got) {
				t.Errorf("%s: not UTF-8: %q", name, got)
			}
			for _, r := range got {
				if !strings.ContainsRune(besides, r) && (forbidden(r) || !unicode.IsPrint(r)) {
					t.Errorf("%s: has %U: %q", name, r, got)
				}
			}
			if twice := again(got); twice != got {
				t.Errorf("%s: not idempotent: %q becomes %q", name, got, twice)
			}
		}
		cut := func(s string) string { return Cut(s, limit) }
		block := func(s string) string { return Block(s, limit) }
		check("Cut", "", cut(s), cut)
		check("Block", "\n\t", block(s), block)
		check("Lines", "\n\t", Lines(s), Lines)
		if len(cut(s)) > limit || len(block(s)) > limit {
			t.Errorf("longer than %d bytes: %q, %q", limit, cut(s), block(s))
		}
		for i, line := range strings.Split(block(s), "\n") {
			if i > 0 && line != "" && line[0] != ' ' && line[0] != '\t' {
				t.Errorf("Block: line %d is not indented: %q", i, line)
			}
		}
		quoted := strconv.Quote(s)
		if quoted == `"`+s+`"` && (Lines(s) != s || !Is(s) || len(s) <= limit && (cut(s) != s || block(s) != s)) {
			t.Errorf("plain text is changed: %q", s)
		}
		var b []byte
		for _, v := range []any{s, json.RawMessage(strconv.Quote(s)), map[string]string{s: s}} {
			text, err := json.Marshal(v)
			if err != nil {
				continue // Go's quotes are not those of JSON
			}
			b = append(append(b, text...), '\n')
		}
		safe := JSON(b)
		check("JSON", "\n", string(safe), func(s string) string { return string(JSON([]byte(s))) })
		if diff := cmp.Diff(values(t, b), values(t, safe)); diff != "" {
			t.Errorf("JSON stands for something else:\n%s", diff)
		}
	})
}

// values decodes all values of a text of JSON.
func values(t *testing.T, b []byte) (all []any) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v: %q", err, b)
		}
		all = append(all, v)
	}
}
