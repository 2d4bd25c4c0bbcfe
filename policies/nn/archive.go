package nn

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Archive is a set of tensors and words that is written as one file, in the
// safetensors format: eight bytes with the length of a JSON header, the header
// (each tensor's dtype, shape and place, and "__metadata__"), and the values,
// little-endian. Python's safetensors reads it.
//
// Parts of a program share an archive by prefixing their names with a word and
// a slash: [Archive.Put] and [Archive.State] do that for a State.
type Archive struct {
	Tensors []Tensor
	Meta    map[string]string
}

// ErrArchive is wrapped by every error of reading data that is no valid archive.
var ErrArchive = errors.New("not a readable safetensors archive")

const (
	maxHeaderBytes = 16 << 20
	metadataKey    = "__metadata__"
)

type header struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// Put adds the tensors of s as "prefix/name".
func (a *Archive) Put(prefix string, s State) {
	for _, t := range s.Tensors {
		t.Name = prefix + "/" + t.Name
		a.Tensors = append(a.Tensors, t)
	}
	a.Set(prefix+"/version", s.Version)
}

// State returns the tensors that were put under prefix. The error names a missing
// tensor.
func (a *Archive) State(prefix string) (State, error) {
	version, err := a.Number(prefix + "/version")
	if err != nil {
		return State{}, err
	}
	s := State{Version: version}
	for _, t := range a.Tensors {
		if name, ok := strings.CutPrefix(t.Name, prefix+"/"); ok {
			t.Name = name
			s.Tensors = append(s.Tensors, t)
		}
	}
	return s, nil
}

// Set adds a counter to the words.
func (a *Archive) Set(name string, v uint64) { a.SetText(name, fmt.Sprint(v)) }

// SetText adds a word.
func (a *Archive) SetText(name, text string) {
	if a.Meta == nil {
		a.Meta = make(map[string]string)
	}
	a.Meta[name] = text
}

// Number returns a counter that was added by Set.
func (a *Archive) Number(name string) (uint64, error) {
	text, ok := a.Meta[name]
	if !ok {
		return 0, fmt.Errorf("archive: %s is missing", name)
	}
	var v uint64
	if _, err := fmt.Sscanf(text, "%d", &v); err != nil || fmt.Sprint(v) != text {
		return 0, fmt.Errorf("archive: %s is %q, not a number", name, text)
	}
	return v, nil
}

// AppendBinary appends the archive's file to dst. Equal archives give equal
// bytes. A name used twice, or data that does not fit its shape, is an error.
func (a *Archive) AppendBinary(dst []byte) ([]byte, error) {
	head := make(map[string]any, len(a.Tensors)+1)
	at := 0
	for _, t := range a.Tensors {
		if _, twice := head[t.Name]; twice || t.Name == metadataKey {
			return nil, fmt.Errorf("archive: tensor name %q is taken", t.Name)
		}
		dtype, count := t.dtype()
		if n := t.len(); n != product(t.Shape) || n != count {
			return nil, fmt.Errorf("archive: tensor %s is %v with %d values, %d of them %s", t.Name, t.Shape, n, count, dtype)
		}
		end := at + sizeOf(dtype)*count
		head[t.Name] = header{dtype, append([]int{}, t.Shape...), [2]int{at, end}}
		at = end
	}
	if len(a.Meta) > 0 {
		head[metadataKey] = a.Meta
	}
	text, err := json.Marshal(head) // sorts its keys
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ') // values begin at a multiple of 8
	}
	dst = slices.Grow(dst, 8+len(text)+at)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(text)))
	dst = append(dst, text...)
	for _, t := range a.Tensors {
		dst = t.appendData(dst)
	}
	return dst, nil
}

// UnmarshalBinary reads a file. Tensors come in the order of their places. It
// takes no more memory than a small multiple of len(src). An error quotes a part of
// the file, and is safe to print.
func (a *Archive) UnmarshalBinary(src []byte) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrArchive}, args...)...)
	}
	if len(src) < 8 {
		return fail("%d bytes", len(src))
	}
	n := binary.LittleEndian.Uint64(src)
	if n > maxHeaderBytes || n > uint64(len(src)-8) {
		return fail("a header of %d bytes in a file of %d", n, len(src))
	}
	text, data := src[8:8+n], src[8+n:]
	var raw map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&raw); err != nil {
		return fail("header: %.200v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fail("header: more than one value")
	}
	var out Archive
	if m, ok := raw[metadataKey]; ok {
		if err := json.Unmarshal(m, &out.Meta); err != nil {
			return fail("%s: %.200v", metadataKey, err)
		}
		delete(raw, metadataKey)
	}
	heads := make(map[string]header, len(raw))
	for name, r := range raw {
		var h header
		if err := json.Unmarshal(r, &h); err != nil {
			return fail("tensor %.100q: %.200v", name, err)
		}
		heads[name] = h
	}
	if err := out.read(heads, data); err != nil {
		return fail("%v", err)
	}
	*a = out
	return nil
}

// read fills in the tensors, which must cover data without gaps.
func (a *Archive) read(heads map[string]header, data []byte) error {
	names := make([]string, 0, len(heads))
	for name := range heads {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		a, b := heads[x].Offsets, heads[y].Offsets
		return slices.Compare(append(a[:], len(x)), append(b[:], len(y)))
	})
	at := 0
	for _, name := range names {
		h := heads[name]
		size := sizeOf(h.DType)
		if size == 0 {
			return fmt.Errorf("tensor %.100q is %.100q, want F32, I32, U8 or U64", name, h.DType)
		}
		count, ok := elements(h.Shape, len(data)/size)
		if !ok || h.Offsets[0] != at || h.Offsets[1] != at+size*count || h.Offsets[1] > len(data) {
			return fmt.Errorf("tensor %.100q of shape %v at %v, want a start at %d", name, h.Shape[:min(len(h.Shape), 8)], h.Offsets, at)
		}
		t := Tensor{Name: name, Shape: h.Shape}
		t.readData(h.DType, data[at:h.Offsets[1]])
		at = h.Offsets[1]
		a.Tensors = append(a.Tensors, t)
	}
	if at != len(data) {
		return fmt.Errorf("%d bytes after the last tensor", len(data)-at)
	}
	return nil
}

// elements returns the product of shape, if it is at most limit.
func elements(shape []int, limit int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > limit/d {
			return 0, false
		}
		n *= d
	}
	return n, n <= limit
}

// sizeOf returns the bytes of a value of a type that an archive may have, or 0.
func sizeOf(dtype string) int {
	switch dtype {
	case "F32", "I32":
		return 4
	case "U8":
		return 1
	case "U64":
		return 8
	}
	return 0
}

// dtype returns the type of the tensor's values in the format's words, and how many it has of those.
func (t Tensor) dtype() (name string, count int) {
	switch {
	case t.Ints != nil:
		return "I32", len(t.Ints)
	case t.Bytes != nil:
		return "U8", len(t.Bytes)
	case t.Words != nil:
		return "U64", len(t.Words)
	}
	return "F32", len(t.Data)
}

func (t Tensor) appendData(dst []byte) []byte {
	for _, v := range t.Data {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	for _, v := range t.Ints {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	for _, v := range t.Words {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return append(dst, t.Bytes...)
}

func (t *Tensor) readData(dtype string, src []byte) {
	switch dtype {
	case "F32":
		t.Data = make([]float32, len(src)/4)
		for i := range t.Data {
			t.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case "I32":
		t.Ints = make([]int32, len(src)/4)
		for i := range t.Ints {
			t.Ints[i] = int32(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case "U64":
		t.Words = make([]uint64, len(src)/8)
		for i := range t.Words {
			t.Words[i] = binary.LittleEndian.Uint64(src[8*i:])
		}
	case "U8":
		t.Bytes = append(make([]uint8, 0, len(src)), src...)
	}
}
