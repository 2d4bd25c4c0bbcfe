package payload

import (
	"slices"
	"strconv"
	"strings"
)

// formatName is the beginning of the hashed text of a fingerprint. It changes when the bytes of the
// format change.
const formatName = "ditask payload 1\n"

// maxSchemaBytes limits the schemas of types that refer to each other so often that writing them
// out would take too long.
const maxSchemaBytes = 1 << 20

// schemaWriter writes the shape of a type. A composite inside itself is
// written as ^n, where n is the number of levels up to it.
type schemaWriter struct {
	strings.Builder
	open []coder
}

func schemaOf(root coder) (string, error) {
	var w schemaWriter
	root.schema(&w)
	if w.Len() > maxSchemaBytes {
		return "", refuse("its shape takes more than %d bytes to write down", maxSchemaBytes)
	}
	return w.String(), nil
}

// enter opens a composite, and reports whether its parts must be written.
func (w *schemaWriter) enter(c coder) bool {
	if i := slices.Index(w.open, c); i >= 0 {
		w.WriteString("^" + strconv.Itoa(len(w.open)-i))
		return false
	}
	if w.Len() > maxSchemaBytes {
		return false
	}
	w.open = append(w.open, c)
	return true
}

func (w *schemaWriter) leave() { w.open = w.open[:len(w.open)-1] }
