package cli

import (
	"regexp"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/nearest"
)

// The messages of package flag that flagFault translates.
const (
	unknownFlag = "flag provided but not defined: -"
	noValue     = "flag needs an argument: -"
)

// flagFault translates an error of package flag into a usage error.
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
		return call.Usage("unknown flag %s%s: see %s", name, nearest.Hint(name, known), help)
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

// wanted describes the values of a flag.
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
