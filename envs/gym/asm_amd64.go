package gym

import "unsafe"

// convert converts n bytes to floats. n is a multiple of 16, and not 0.
//
//go:noescape
func convert(dst *float32, from *byte, n int)

// odd reports whether one of the floats in n bytes is NaN or infinite. n is a multiple of 64, and not 0.
//
//go:noescape
func odd(from *byte, n int) bool

// inOrder reports that the stores of a processor are seen in their order by others.
const inOrder = true

// pause waits for n instructions of that name, in which the other thread of a core has the core.
//
//go:noescape
func pause(n int)

// convertMost converts the first of the bytes, at most as many as dst has values, and returns how many.
func convertMost(dst []float32, from []byte) int {
	n := min(len(dst), len(from)) &^ 15
	if n > 0 {
		convert(unsafe.SliceData(dst), unsafe.SliceData(from), n)
	}
	return n
}

// oddInMost looks at the first of the floats, and returns at how many bytes of them.
func oddInMost(from []byte) (found bool, n int) {
	if n = len(from) &^ 63; n > 0 {
		found = odd(unsafe.SliceData(from), n)
	}
	return found, n
}
