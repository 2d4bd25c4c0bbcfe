package serve

import (
	"fmt"
	"net/http"

	"github.com/ditask/ditask/internal/printable"
)

// fault is a fault in a request, in the form of its answer.
type fault struct {
	status  int
	code    string
	where   string // in the request, such as observation[2]; empty: the whole of it
	message string
}

// Error returns the place and the message.
func (f *fault) Error() string {
	if f.where == "" {
		return f.message
	}
	return f.where + ": " + f.message
}

// The codes of faults, which are the outcomes in the metrics too.
const (
	codeOK           = "ok"
	codeInvalid      = "invalid"
	codeUnauthorized = "unauthorized"
	codeForbidden    = "forbidden"
	codeNotFound     = "not_found"
	codeMethod       = "method_not_allowed"
	codeTimeout      = "timeout"
	codeSession      = "unknown_session"
	codeSessionBusy  = "session_in_use"
	codeTooLarge     = "too_large"
	codeBusy         = "busy"
	codeFailed       = "failed"
	codeEnding       = "unavailable"
	codeGone         = "client_gone"
)

// outcomes lists the codes, in the order of the metrics.
func outcomes() []string {
	return []string{
		codeOK, codeInvalid, codeUnauthorized, codeForbidden, codeNotFound, codeMethod, codeTimeout, codeSession, codeSessionBusy, codeTooLarge,
		codeBusy, codeFailed, codeEnding, codeGone,
	}
}

// invalid returns a fault of a request's content.
func invalid(where, format string, args ...any) *fault {
	return &fault{http.StatusBadRequest, codeInvalid, where, fmt.Sprintf(format, args...)}
}

// within reports that a fault is inside of something.
func (f *fault) within(outer string) *fault {
	if f.where != "" && f.where[0] != '[' && outer != "" {
		outer += "."
	}
	f.where = outer + f.where
	return f
}

// quoted returns a text of the request in a message.
func quoted(text string) string { return fmt.Sprintf("%q", printable.Cut(text, 64)) }
