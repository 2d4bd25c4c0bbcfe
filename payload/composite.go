package payload

import (
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"unsafe"
)

const tooDeep = "nested more than Limits.MaxDepth deep"

// structCoder codes a struct as the array of its fields.
type structCoder struct {
	traits
	fields []field
	room   int // the maximum size of the quick fields
}

type field struct {
	coder
	name   string
	offset uintptr
	quick  quick
	// Of a quickArray: its head in the low bytes, the number of those bytes, and the number of
	// words that follow.
	head      uint64
	headBytes int
	words     int
}

// quick are the types that a struct's loop encodes and decodes itself, in their most common form: a
// call through an interface costs more than the few bytes of a number.
type quick uint8

const (
	quickNot quick = iota
	quickBool
	quickInt32
	quickInt64
	quickFloat32
	quickFloat64
	quickArray // of numbers, of some whole words in all
)

const (
	word       = 8
	quickWords = 16 // more are copied as quickly by a call
)

// add adds a field.
func (s *structCoder) add(c coder, name string, offset uintptr) {
	f := field{coder: c, name: name, offset: offset}
	room := 1 + word
	switch c := c.(type) {
	case boolCoder:
		f.quick = quickBool
	case signedCoder[int32]:
		f.quick = quickInt32
	case signedCoder[int64]:
		f.quick = quickInt64
	case float32Coder:
		f.quick = quickFloat32
	case float64Coder:
		f.quick = quickFloat64
	case *tensorArrayCoder:
		if n := c.len * c.size; c.head != "" && n%word == 0 && n <= quickWords*word {
			f.quick, f.headBytes, f.words = quickArray, len(c.head), n/word
			for i := range len(c.head) {
				f.head |= uint64(c.head[i]) << (8 * i)
			}
			room = word + n
		}
	}
	if f.quick != quickNot {
		s.room += room
	}
	s.fields = append(s.fields, f)
}

func (s *structCoder) append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error) {
	if depth == 0 {
		return dst, refuse(tooDeep)
	}
	dst = slices.Grow(appendHead(dst, majorArray, uint64(len(s.fields))), s.room)
	for i := range s.fields {
		f := &s.fields[i]
		from := unsafe.Add(p, f.offset)
		switch f.quick {
		case quickBool:
			dst = appendBool(dst, *(*bool)(from))
		case quickInt32:
			dst = appendInt(dst, int64(*(*int32)(from)))
		case quickInt64:
			dst = appendInt(dst, *(*int64)(from))
		case quickFloat32:
			dst = appendFloat32(dst, *(*uint32)(from))
		case quickFloat64:
			dst = appendFloat64(dst, *(*uint64)(from))
		case quickArray:
			dst = f.appendWords(dst, from)
		default:
			var err error
			if dst, err = f.append(dst, from, base, depth-1, b); err != nil {
				return dst, at(err, "."+f.name)
			}
		}
	}
	return dst, nil
}

// appendWords appends a quickArray.
func (f *field) appendWords(dst []byte, from unsafe.Pointer) []byte {
	n := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, f.head)[:n+f.headBytes]
	for v := unsafe.Slice((*byte)(from), f.words*word); len(v) >= word; v = v[word:] {
		dst = binary.NativeEndian.AppendUint64(dst, binary.NativeEndian.Uint64(v))
	}
	return dst
}

func (s *structCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool, b *budget) (int, error) {
	initial, arg, next, err := readHead(src, pos)
	switch {
	case err != nil:
		return pos, err
	case initial>>5 != majorArray:
		return pos, unexpected(pos, initial, "the array of a struct's fields")
	case arg != uint64(len(s.fields)):
		return pos, invalid(pos, "%d fields where %d belong", arg, len(s.fields))
	case depth == 0:
		return pos, invalid(pos, tooDeep)
	}
	for i := 0; ; i++ {
		if i, next = s.decodeQuick(src, next, p, i); i == len(s.fields) {
			return next, nil
		}
		f := &s.fields[i]
		if next, err = f.decode(src, next, unsafe.Add(p, f.offset), depth-1, owned, b); err != nil {
			return next, at(err, "."+f.name)
		}
	}
}

// decodeQuick decodes the fields from number i on, up to one that is not quick or has another form
// than the most common, and returns its number and position.
func (s *structCoder) decodeQuick(src []byte, pos int, p unsafe.Pointer, i int) (field, next int) {
	for ; i < len(s.fields) && pos < len(src); i++ {
		f := &s.fields[i]
		to, rest := unsafe.Add(p, f.offset), src[pos:]
		first, n := rest[0], 0
		switch f.quick {
		case quickArray:
			n = f.decodeWords(rest, to)
		case quickBool:
			if first|1 == byteTrue { // the two bytes differ in the last bit
				*(*bool)(to), n = first == byteTrue, 1
			}
		case quickInt32:
			if first < 24 { // a small one is its own head
				*(*int32)(to), n = int32(first), 1
			}
		case quickInt64:
			if first < 24 {
				*(*int64)(to), n = int64(first), 1
			}
		case quickFloat32:
			if first == byteSingle && len(rest) >= 5 {
				*(*uint32)(to), n = binary.BigEndian.Uint32(rest[1:]), 5
			}
		case quickFloat64:
			if first == byteDouble && len(rest) >= 9 {
				*(*uint64)(to), n = binary.BigEndian.Uint64(rest[1:]), 9
			}
		}
		if n == 0 {
			return i, pos
		}
		pos += n
	}
	return i, pos
}

// decodeWords decodes a quickArray, and returns the number of bytes read: 0 if it has another form.
func (f *field) decodeWords(src []byte, to unsafe.Pointer) int {
	end := f.headBytes + f.words*word
	if len(src) < end || (binary.LittleEndian.Uint64(src)^f.head)<<(64-8*f.headBytes) != 0 {
		return 0
	}
	for b, v := src[f.headBytes:end], unsafe.Slice((*byte)(to), f.words*word); len(b) >= word; b, v = b[word:], v[word:] {
		binary.NativeEndian.PutUint64(v, binary.NativeEndian.Uint64(b))
	}
	return end
}

func (s *structCoder) schema(w *schemaWriter) {
	if !w.enter(s) {
		return
	}
	defer w.leave()
	w.WriteString("struct{")
	for i, f := range s.fields {
		if i > 0 {
			w.WriteByte(' ')
		}
		w.WriteString(f.name + ":")
		f.schema(w)
	}
	w.WriteByte('}')
}

// sliceCoder codes slices that are not tensors.
type sliceCoder struct {
	traits
	typ     reflect.Type
	element coder
	size    uintptr
	limit   int
}

func (s *sliceCoder) append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error) {
	h := (*sliceHeader)(p)
	switch {
	case h.data == nil:
		return append(dst, byteNull), nil
	case depth == 0:
		return dst, refuse(tooDeep)
	case h.len > s.limit:
		return dst, refuse("%d elements; the limit is %d", h.len, s.limit)
	}
	b.take(h.len * int(s.size))
	return appendElements(dst, s.element, h.data, h.len, s.size, base, depth, b)
}

func (s *sliceCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool, b *budget) (int, error) {
	h := (*sliceHeader)(p)
	initial, arg, next, err := readHead(src, pos)
	switch {
	case err != nil:
		return pos, err
	case isNull(initial):
		*h = sliceHeader{}
		return next, nil
	case initial>>5 != majorArray:
		return pos, unexpected(pos, initial, "an array")
	case depth == 0:
		return pos, invalid(pos, tooDeep)
	}
	n, err := readCount(src, pos, next, arg, s.element.minBytes(), s.limit)
	if err != nil {
		return pos, err
	}
	if !b.take(product(n, int(s.size))) {
		return pos, b.exceeded(pos)
	}
	if *h = empty(); n > 0 {
		*h = sliceHeader{}
		reflect.NewAt(s.typ, p).Elem().Grow(n) // MakeSlice would allocate a header besides
		h.len, h.cap = n, n
	}
	return decodeElements(src, next, s.element, h.data, n, s.size, depth, owned, b)
}

// empty is a slice without elements that is not nil.
func empty() sliceHeader {
	return sliceHeader{data: unsafe.Pointer(unsafe.SliceData([]byte{}))}
}

func (s *sliceCoder) schema(w *schemaWriter) {
	if w.enter(s) {
		defer w.leave()
		w.WriteString("[]")
		s.element.schema(w)
	}
}

func appendElements(dst []byte, element coder, data unsafe.Pointer, n int, size uintptr, base, depth int, b *budget) ([]byte, error) {
	dst = appendHead(dst, majorArray, uint64(n))
	for i := range n {
		var err error
		if dst, err = element.append(dst, unsafe.Add(data, uintptr(i)*size), base, depth-1, b); err != nil {
			return dst, at(err, index(i))
		}
	}
	return dst, nil
}

func decodeElements(src []byte, pos int, element coder, data unsafe.Pointer, n int, size uintptr, depth int, owned bool, b *budget,
) (int, error) {
	for i := range n {
		var err error
		if pos, err = element.decode(src, pos, unsafe.Add(data, uintptr(i)*size), depth-1, owned, b); err != nil {
			return pos, at(err, index(i))
		}
	}
	return pos, nil
}

// arrayCoder codes arrays that are not tensors.
type arrayCoder struct {
	traits
	element coder
	size    uintptr
	len     int
}

func (a *arrayCoder) append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error) {
	if depth == 0 {
		return dst, refuse(tooDeep)
	}
	return appendElements(dst, a.element, p, a.len, a.size, base, depth, b)
}

func (a *arrayCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool, b *budget) (int, error) {
	initial, arg, next, err := readHead(src, pos)
	switch {
	case err != nil:
		return pos, err
	case initial>>5 != majorArray:
		return pos, unexpected(pos, initial, "an array")
	case arg != uint64(a.len):
		return pos, invalid(pos, "%d elements where %d belong", arg, a.len)
	case depth == 0:
		return pos, invalid(pos, tooDeep)
	}
	return decodeElements(src, next, a.element, p, a.len, a.size, depth, owned, b)
}

func (a *arrayCoder) schema(w *schemaWriter) {
	if w.enter(a) {
		defer w.leave()
		w.WriteString(index(a.len))
		a.element.schema(w)
	}
}

// pointerCoder codes a pointer as null or the value it points to. If that value may be null itself,
// it is wrapped into an array of one.
type pointerCoder struct {
	traits
	typ     reflect.Type // what it points to
	element coder
	wrap    bool
}

func (c *pointerCoder) append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error) {
	to := *(*unsafe.Pointer)(p)
	if to == nil {
		return append(dst, byteNull), nil
	}
	if depth == 0 {
		return dst, refuse(tooDeep)
	}
	if c.wrap {
		dst = appendHead(dst, majorArray, 1)
	}
	b.take(objectBytes(c.typ))
	return c.element.append(dst, to, base, depth-1, b)
}

func (c *pointerCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool, b *budget) (int, error) {
	initial, arg, next, err := readHead(src, pos)
	switch {
	case err != nil:
		return pos, err
	case isNull(initial):
		*(*unsafe.Pointer)(p) = nil
		return next, nil
	case depth == 0:
		return pos, invalid(pos, tooDeep)
	case !c.wrap:
		next = pos
	case initial>>5 != majorArray || arg != 1:
		return pos, unexpected(pos, initial, "null or an array of one")
	}
	if !b.take(objectBytes(c.typ)) {
		return pos, b.exceeded(pos)
	}
	to := reflect.New(c.typ).UnsafePointer()
	*(*unsafe.Pointer)(p) = to
	return c.element.decode(src, next, to, depth-1, owned, b)
}

func (c *pointerCoder) schema(w *schemaWriter) {
	if w.enter(c) {
		defer w.leave()
		w.WriteString("*")
		c.element.schema(w)
	}
}

// saturate is a+b*n without overflow.
func saturate(a, b, n int) int {
	if n > 0 && b > (math.MaxInt-a)/n {
		return math.MaxInt
	}
	return a + b*n
}
