package logtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Forged is a line that [Hostile] tries to add to a log.
const Forged = "job finished OK"

// Hostile is a text that tries to control the terminal of its reader: it clears the screen,
// begins a new line in each possible way, and reverses the rest.
const Hostile = "\x1b[2J\x1b[1;1H" + Forged + "\r\n" + Forged + "\n" + Forged + "\u0085" + Forged + "\u2028" + Forged + "\u2029" +
	Forged + "\u009b2J\x7f\x00\x07\u202e\u202a\u2066\u2069\u200e\u200f\u061c\v\f\b"

// Faults reports where text, which is to be printed, has what [Hostile] consists of: raw
// control characters, marks of direction, or a line that begins with [Forged]. It is empty
// if text is safe.
func Faults(text string) string {
	var faults []string
	for at, r := range text {
		switch {
		case r == '\n' || r == '\t':
		case r < ' ', r >= 0x7f && r <= 0x9f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069,
			r == 0x200e, r == 0x200f, r == 0x061c, r == 0x2028, r == 0x2029, r == utf8.RuneError:
			faults = append(faults, fmt.Sprintf("%U at byte %d", r, at))
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, Forged) {
			faults = append(faults, fmt.Sprintf("the line %q", line))
		}
	}
	if len(faults) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %q", strings.Join(faults, ", "), text)
}

// Raw returns a handler that writes the message and the attributes of a record to w as they
// are, so that a test sees what a handler that quotes nothing would print.
func Raw(w io.Writer) slog.Handler { return raw{w, ""} }

type raw struct {
	w     io.Writer
	attrs string
}

func (raw) Enabled(context.Context, slog.Level) bool { return true }

func (h raw) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message + h.attrs
	r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	_, err := io.WriteString(h.w, text+"\n")
	return err
}

func (h raw) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return h
}

func (h raw) WithGroup(string) slog.Handler { return h }
