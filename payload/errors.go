package payload

import (
	"fmt"
	"strings"
)

// EncodeError reports that a type, or one value of it, cannot travel.
type EncodeError struct {
	Type string // the Go type that was to travel
	Path string // where inside it, such as "Layers[3].Hook"; empty for the whole
	What string // the fault there
	Err  error  // the error of a type that writes its own bytes, or nil
}

// Error names the type, the path and the fault.
func (e *EncodeError) Error() string {
	return render("encode", e.Type, e.Path, e.What, e.Err)
}

// Unwrap returns the error of the type that writes its own bytes, if any.
func (e *EncodeError) Unwrap() error { return e.Err }

// DecodeError reports that bytes are not a value of the requested type.
type DecodeError struct {
	Type   string // the requested Go type
	Path   string // where inside it, such as "Layers[3].Data"; empty for the whole
	Offset int    // byte of the payload at which the faulty item starts
	What   string // the fault there
	Err    error  // the error of a type that parses its own bytes, or nil
}

// Error names the type, the path, the offset and the fault.
func (e *DecodeError) Error() string {
	return render("decode", e.Type, e.Path, fmt.Sprintf("at byte %d: %s", e.Offset, e.What), e.Err)
}

// Unwrap returns the error of the type that parses its own bytes, if any.
func (e *DecodeError) Unwrap() error { return e.Err }

func render(verb, typ, path, what string, err error) string {
	var b strings.Builder
	b.WriteString("payload: " + verb + " " + typ + ": ")
	if path != "" {
		b.WriteString(path + ": ")
	}
	b.WriteString(what)
	if err != nil {
		b.WriteString(": " + err.Error())
	}
	return b.String()
}

// at adds a segment at the beginning of the path of an error.
func at(err error, segment string) error {
	switch e := err.(type) { //nolint:errorlint // ours, and not wrapped on its way out
	case *DecodeError:
		e.Path = segment + e.Path
	case *EncodeError:
		e.Path = segment + e.Path
	}
	return err
}

// finish completes an error that has reached the root.
func finish(err error, typ string) error {
	switch e := err.(type) { //nolint:errorlint // ours, and not wrapped on its way out
	case *DecodeError:
		e.Type, e.Path = typ, strings.TrimPrefix(e.Path, ".")
	case *EncodeError:
		e.Type, e.Path = typ, strings.TrimPrefix(e.Path, ".")
	}
	return err
}

func refuse(format string, args ...any) error {
	return &EncodeError{What: fmt.Sprintf(format, args...)}
}

func invalid(pos int, format string, args ...any) error {
	return &DecodeError{Offset: pos, What: fmt.Sprintf(format, args...)}
}

// unexpected reports the item found in place of another.
func unexpected(pos int, initial byte, want string) error {
	return invalid(pos, "%s where %s belongs", describe(initial), want)
}

func describe(initial byte) string {
	switch initial >> 5 {
	case majorUint:
		return "an unsigned integer"
	case majorNegative:
		return "a negative integer"
	case majorBytes:
		return "a byte string"
	case majorText:
		return "a text string"
	case majorArray:
		return "an array"
	case majorMap:
		return "a map"
	case majorTag:
		return "a tag"
	}
	switch initial {
	case byteFalse, byteTrue:
		return "a boolean"
	case byteNull, byteUndefined:
		return "null"
	case byteHalf, byteSingle, byteDouble:
		return "a float"
	}
	return "an unassigned simple value"
}
