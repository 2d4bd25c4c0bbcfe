// Package quote writes text from outside, such as the values of flags, as text of another
// language: a shell, a line of a batch script of Slurm, YAML, and the templates of Helm.
//
//	line := "exec " + quote.Shell("echo", name)
//	line := "name: " + quote.YAML(name)
//	file := quote.Helm("name: ") + "{{ .Values.name | toJson }}"
//
// All functions are pure. Each result represents exactly the text: for any text it is one
// word, one scalar or plain output, and no part of it is executed.
package quote

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// plainWord matches words that need no quotes in any shell. A word with an equals sign
// could be an assignment, unless it is an option.
var plainWord = regexp.MustCompile(`^([A-Za-z0-9_@%+:,./-]+|-[A-Za-z0-9_@%+=:,./-]*)$`)

// Shell returns words of a POSIX shell, separated by spaces: one for each argument. No
// argument may contain a zero byte; arguments of a process never do.
func Shell(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = w; !plainWord.MatchString(w) {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// CheckDirective returns an error unless text can be part of an option of an #SBATCH line
// without quotes. White space would begin another option; sbatch interprets quotes,
// backslashes and number signs; other characters must be printable.
func CheckDirective(text string) error {
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar || strings.ContainsRune(`"'\#`, r) {
			return fmt.Errorf("%q: want text without white space, quotes, backslashes and #", text)
		}
	}
	return nil
}

// YAML returns text as a scalar of YAML, a string in double quotes on one line. Bytes that
// are not UTF-8 become U+FFFD, as YAML cannot represent them. The scalar can be a key of a
// mapping if it has at most 1024 bytes.
func YAML(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteRune('\\')
			out.WriteRune(r)
		case r > 0xFFFF:
			_, _ = fmt.Fprintf(&out, `\U%08X`, r) // to memory
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			_, _ = fmt.Fprintf(&out, `\u%04X`, r) // the same
		}
	}
	return out.String() + `"`
}

// Helm returns a part of a Helm template that prints text. The next character of the
// template must not be a brace.
func Helm(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// HelmString returns text as a string in an expression of a template of Helm.
func HelmString(text string) string { return strconv.Quote(text) }

// Arguments returns texts as arguments of a container, in which Kubernetes replaces no
// variable.
func Arguments(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = strings.ReplaceAll(text, "$", "$$")
	}
	return out
}
