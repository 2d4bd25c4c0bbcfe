package payload

import (
	"math"
	"time"
	"unsafe"
)

// durationCoder codes a time.Duration as its nanoseconds.
type durationCoder struct{ signedCoder[int64] }

func (durationCoder) schema(w *schemaWriter) { w.WriteString("duration") }

// timeCoder codes a time.Time as tag 0 and RFC 3339 text.
type timeCoder struct{ scalar }

func (timeCoder) append(dst []byte, p unsafe.Pointer, _, _ int, b *budget) ([]byte, error) {
	start := len(dst)
	dst, err := appendTime(dst, *(*time.Time)(p))
	if err == nil {
		b.take(zoneBytes(dst[start:]))
	}
	return dst, err
}

func appendTime(dst []byte, t time.Time) ([]byte, error) {
	if _, offset := t.Zone(); offset%60 != 0 {
		t = t.UTC() // RFC 3339 has no seconds in its offsets
	}
	start := len(dst)
	out, err := t.AppendText(append(dst, majorTag<<5|tagTimeText, 0, 0))
	if err != nil {
		return dst, &EncodeError{What: "a time that RFC 3339 cannot write", Err: err}
	}
	n := len(out) - start - 3
	if n < 24 {
		out[start+1] = majorText<<5 | byte(n)
		copy(out[start+2:], out[start+3:])
		return out[:len(out)-1], nil
	}
	out[start+1], out[start+2] = majorText<<5|24, byte(n)
	return out, nil
}

// decode accepts tag 0 with text and tag 1 with a number of seconds, both also without their tags,
// and null for the zero time, as other implementations write it.
func (timeCoder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, b *budget) (int, error) {
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if isNull(initial) {
		*(*time.Time)(p) = time.Time{}
		return next, nil
	}
	tag := -1
	if initial>>5 == majorTag {
		if arg > tagTimeEpoch {
			return pos, invalid(pos, "tag %d where a time belongs", arg)
		}
		tag, pos = int(arg), next
		if initial, arg, next, err = readHead(src, pos); err != nil {
			return pos, err
		}
	}
	if initial>>5 != majorText {
		if tag == tagTimeText {
			return pos, unexpected(pos, initial, "the text of a time")
		}
		t, err := epochTime(pos, initial, arg)
		*(*time.Time)(p) = t
		return next, err
	}
	if tag == tagTimeEpoch {
		return pos, unexpected(pos, initial, "the seconds of a time")
	}
	text, next, err := readBlock(src, pos, next, arg)
	if err != nil {
		return pos, err
	}
	if !b.take(zoneBytes(text)) {
		return pos, b.exceeded(pos)
	}
	if err := (*time.Time)(p).UnmarshalText(text); err != nil {
		return pos, &DecodeError{Offset: pos, What: "a time that is not RFC 3339", Err: err}
	}
	return next, nil
}

// zoneBytes returns the memory of the zone of a time with that text.
func zoneBytes(text []byte) int {
	if len(text) == 0 || text[len(text)-1] == 'Z' {
		return 0
	}
	return offsetBytes
}

func (timeCoder) schema(w *schemaWriter) { w.WriteString("time") }

// The first second of year 0 and the last of year 9999, the range of RFC 3339.
const (
	minEpoch = -62167219200
	maxEpoch = 253402300799
)

func epochTime(pos int, initial byte, arg uint64) (time.Time, error) {
	seconds, err := asFloat64(pos, initial, arg)
	if err != nil {
		return time.Time{}, err
	}
	if !(seconds >= minEpoch && seconds <= maxEpoch) {
		return time.Time{}, invalid(pos, "a time outside of the years 0 to 9999")
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(fraction*1e9))).UTC(), nil
}
