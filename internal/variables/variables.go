// Package variables reads the environment variables of a launcher, and collects all
// faults in them, each with the variable and its value.
package variables

import (
	"errors"
	"fmt"
	"strconv"
)

// Reader reads variables through Lookup, which is os.LookupEnv in a program.
type Reader struct {
	Lookup func(string) (string, bool)

	faults []error
}

// Err joins the faults so far; nil: there is none.
func (r *Reader) Err() error { return errors.Join(r.faults...) }

// Faults returns the number of faults so far.
func (r *Reader) Faults() int { return len(r.faults) }

// Faultf records a fault of a variable.
func (r *Reader) Faultf(name, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s=%q: %s", name, r.Value(name), fmt.Sprintf(format, args...)))
}

// Value returns the value of a variable, empty if it is not set.
func (r *Reader) Value(name string) string {
	value, _ := r.Lookup(name)
	return value
}

// Text returns the value of a variable that has to be set. The advice says what to do
// where it is not.
func (r *Reader) Text(name, advice string) string {
	value, ok := r.Lookup(name)
	if value == "" {
		what := "is not set"
		if ok {
			what = "is empty"
		}
		r.faults = append(r.faults, fmt.Errorf("%s %s: %s, or give --platform local", name, what, advice))
	}
	return value
}

// Number reads a number. Where it is not set it is 0, and a fault if there is an
// advice, which says what to do.
func (r *Reader) Number(name string, least, most int, advice string) int {
	value := r.Value(name)
	if advice != "" {
		value = r.Text(name, advice)
	}
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		r.Faultf(name, "want a number from %d to %d", least, most)
		return 0
	}
	return n
}
