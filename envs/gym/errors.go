package gym

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/printable"
)

// The causes of an error of an environment that package envs has no name for.
var (
	// ErrExited is wrapped where a process has ended by itself.
	ErrExited = errors.New("the Python process has ended")
	// ErrResult is wrapped where an environment breaks the rules of Gymnasium's interface.
	ErrResult = errors.New("breaks Gymnasium's interface")
	// ErrInfo is wrapped where a value of [Config.Infos] is no finite number.
	ErrInfo = errors.New("an info cannot be passed on")
	// ErrPython is wrapped where Python, gymnasium or a module is missing, or too old.
	ErrPython = errors.New("cannot load environments of Python")
)

// maxText bounds a traceback, and every other text of a fault.
const maxText = 4 << 10

// PythonError is an exception of an environment.
type PythonError struct {
	Type, Message string
	// Traceback is Python's, or its end if it has more than 4 KiB. It may be empty.
	Traceback string
}

// Error has the traceback behind the message.
func (e *PythonError) Error() string {
	text := e.Type
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Traceback != "" {
		text += "\n" + e.Traceback
	}
	return text
}

// fault is the answer of a process to a request that has failed.
type fault struct {
	Index     int    // of the environment in the process; -1: none
	Op        string // make, reset, step or render
	Code      string
	Text      string
	Type      string
	Message   string
	Traceback string
}

// decodeFault returns the fault that a process has sent.
func decodeFault(payload []byte) (fault, error) {
	var f fault
	if err := json.Unmarshal(payload, &f); err != nil {
		return f, fmt.Errorf("decode a fault: %w", err)
	}
	f.Op, f.Code = printable.Cut(f.Op, 32), printable.Cut(f.Code, 32)
	f.Text, f.Type = printable.Block(f.Text, maxText), printable.Cut(f.Type, 128)
	f.Message = printable.Block(f.Message, maxText)
	f.Traceback = indented(printable.Lines(tailOf(f.Traceback, maxText)))
	return f, nil
}

// tailOf returns the last n bytes of a text, from the beginning of a line if it can.
func tailOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return "...\n" + s
}

// indented returns a text whose lines all begin with white space, without the last line break.
func indented(s string) string {
	if s = strings.TrimRight(s, "\n"); s == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(s, "\n", "\n    ")
}

// cause is the error that a fault stands for.
func (f *fault) cause() error {
	switch f.Code {
	case "exception":
		return &PythonError{f.Type, f.Message, f.Traceback}
	case "shape":
		return fmt.Errorf("%w: %s", envs.ErrShape, f.Text)
	case "info":
		return fmt.Errorf("%w: %s", ErrInfo, f.Text)
	case "exit":
		return fmt.Errorf("%w: %s", ErrExited, f.Text)
	case "python", "gymnasium", "module", "attr", "unknown", "protocol":
		return fmt.Errorf("%w: %s", ErrPython, f.Text)
	}
	return fmt.Errorf("%w: %s", ErrResult, f.Text)
}
