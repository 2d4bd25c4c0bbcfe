package cli

import (
	"fmt"
	"regexp"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// The messages of package flag that flagFault translates.
const (
	unknownFlag = "flag provided but not defined: -"
	noValue     = "flag needs an argument: -"
)

// flagFault says what is wrong with a flag in our words.
func (c command) flagFault(ctx *urfave.Context, err error, sub bool) error {
	flags, help := ctx.App.Flags, "ditask --help"
	if sub {
		flags, help = ctx.Command.Flags, ctx.Command.HelpName+" --help"
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, unknownFlag); ok {
		var known []string
		for _, f := range flags {
			known = append(known, dashed(f.Names())...)
		}
		name = dashed([]string{name})[0]
		return call.Usage("unknown flag %s%s: see %s", name, didYouMean(name, known), help)
	}
	if name, ok := strings.CutPrefix(text, noValue); ok {
		return call.Usage("%s needs a value: see %s", dashed([]string{name})[0], help)
	}
	m := regexp.MustCompile(`^invalid (?:boolean )?value "(.*)" for (?:flag )?-([\w-]+): `).FindStringSubmatch(text)
	if m == nil {
		return call.UsageError{Err: err}
	}
	return call.Usage("%s %q: want %s", dashed(m[2:])[0], m[1], wanted(flags, m[2]))
}

// wanted says what the values of a flag look like.
func wanted(flags []urfave.Flag, name string) string {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n != name {
				continue
			}
			switch f.(type) {
			case *urfave.DurationFlag:
				return `a duration such as "10s"`
			case *urfave.BoolFlag:
				return "true or false"
			case *urfave.IntFlag, *urfave.Int64Flag:
				return "a whole number"
			}
		}
	}
	return "another value"
}

// dashed puts one hyphen before names of one letter, and two before others.
func dashed(names []string) []string {
	var out []string
	for _, n := range names {
		if len(n) == 1 {
			out = append(out, "-"+n)
		} else {
			out = append(out, "--"+n)
		}
	}
	return out
}

// didYouMean is ", did you mean x?" if one of known is much like word.
func didYouMean(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(word, k); d < least && d < (len(word)+1)/2 {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance is the number of letters to insert, delete or replace to make b of
// a (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
