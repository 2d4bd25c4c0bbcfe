package quote_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"text/template"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v2"

	"github.com/ditask/ditask/internal/cli/quote"
	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

// attacks are texts that mean something in one of the languages.
var attacks = []string{
	"", "a", "a b", "it's", "$x", "--lr=1e-3", "A=b", "-", "$(id)", "`id`", "a\nid", "\\", "a\\", `"`, `"; id; "`, "~", "*", "#", "!x",
	"\r\n", "\t", "{{", "}}", "{{ .Values }}", "{", "{{{", "a{{- x -}}b", `{{"`, "yes", "1", "null", "- a", "a: b", "&a", "*a", "!!str", "%",
	"\u0085", "\u2028", "\ufeff", "\ue000.Values.x\ue001", "\x7f", "\x1b[2J", "\u0080", "\xff", "\U0001F600", "\U0010FFFF", "\uFFFE", "é",
}

func TestShellWordsThatMeanThemselves(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "--lr=1e-3": "--lr=1e-3", "A=b": "'A=b'", "a\n": "'a\n'",
	} {
		if got := quote.Shell(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := quote.Shell("a", "", "b c"); got != "a '' 'b c'" {
		t.Error(got)
	}
}

func TestCheckDirective(t *testing.T) {
	for _, good := range []string{"", "gpu:2", "1-12:00:00", "--constraint=[a&b|c]*2", "%x-%j.out", "größe", "$(id)"} {
		if err := quote.CheckDirective(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"a b", "a\nb", "a\u0085b", "a\u2028b", "a\u00a0b", `a"b`, "a'b", `a\b`, "a#b", "a\x00", "\x7f", "\xff"} {
		if err := quote.CheckDirective(bad); err == nil {
			t.Errorf("%q can stand in a directive", bad)
		}
	}
}

func FuzzShell(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip(err)
	}
	for _, a := range attacks {
		f.Add(a, "second")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		if strings.ContainsRune(first+second, 0) {
			return
		}
		cmd := exec.Command(bash, "-u")
		cmd.Stdin = strings.NewReader("printf '%s\\0' " + quote.Shell(first, second))
		cmd.Dir, cmd.Env = t.TempDir(), leak.Check(t).Environ()
		out, err := cmd.CombinedOutput()
		if want := first + "\x00" + second + "\x00"; err != nil || string(out) != want {
			t.Errorf("%q, want %q (%v)", out, want, err)
		}
	})
}

func FuzzYAML(f *testing.F) {
	for _, a := range attacks {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got map[string]string
		scalar := quote.YAML(text)
		if strings.ContainsAny(scalar, "\r\n\u0085\u2028\u2029") || !utf8.ValidString(scalar) {
			t.Errorf("%q is more than one line, or no UTF-8", scalar)
		}
		if text == "key" || !utf8.ValidString(text) {
			text = strings.ToValidUTF8(text, "") + "!"
			scalar = quote.YAML(text)
		}
		file, keys := "key: "+scalar+" # c\n", 1
		if len(scalar) <= 1024 {
			file, keys = file+scalar+": value\n", 2
		}
		err := yaml.Unmarshal([]byte(file), &got)
		if err != nil || len(got) != keys || got["key"] != text || keys == 2 && got[text] != "value" {
			t.Errorf("%s: %q, %v", scalar, got, err)
		}
	})
}

func FuzzHelm(f *testing.F) {
	for _, a := range attacks {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := quote.Helm(text) + "\n{{ print " + quote.HelmString(text) + " }}"
		parsed, err := template.New("").Parse(file)
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, nil); err != nil || out.String() != text+"\n"+text {
			t.Errorf("%q, want %q twice (%v)", out.String(), text, err)
		}
	})
}
