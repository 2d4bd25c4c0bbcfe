package payload

import (
	"math"
	"reflect"
	"unsafe"
)

const tooDeep = "nested more than Limits.MaxDepth deep"

// structCoder codes a struct as the array of its fields.
type structCoder struct {
	traits
	fields []field
}

type field struct {
	coder
	name   string
	offset uintptr
}

func (s *structCoder) append(dst []byte, p unsafe.Pointer, base, depth int) ([]byte, error) {
	if depth == 0 {
		return dst, refuse(tooDeep)
	}
	dst = appendHead(dst, majorArray, uint64(len(s.fields)))
	for i := range s.fields {
		f := &s.fields[i]
		var err error
		if dst, err = f.append(dst, unsafe.Add(p, f.offset), base, depth-1); err != nil {
			return dst, at(err, "."+f.name)
		}
	}
	return dst, nil
}

func (s *structCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool) (int, error) {
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
	for i := range s.fields {
		f := &s.fields[i]
		if next, err = f.decode(src, next, unsafe.Add(p, f.offset), depth-1, owned); err != nil {
			return next, at(err, "."+f.name)
		}
	}
	return next, nil
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

func (s *sliceCoder) append(dst []byte, p unsafe.Pointer, base, depth int) ([]byte, error) {
	h := (*sliceHeader)(p)
	switch {
	case h.data == nil:
		return append(dst, byteNull), nil
	case depth == 0:
		return dst, refuse(tooDeep)
	case h.len > s.limit:
		return dst, refuse("%d elements; the limit is %d", h.len, s.limit)
	}
	return appendElements(dst, s.element, h.data, h.len, s.size, base, depth)
}

func (s *sliceCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool) (int, error) {
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
	if *h = empty(); n > 0 {
		*h = sliceHeader{}
		reflect.NewAt(s.typ, p).Elem().Grow(n) // MakeSlice would allocate a header besides
		h.len, h.cap = n, n
	}
	return decodeElements(src, next, s.element, h.data, n, s.size, depth, owned)
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

func appendElements(dst []byte, element coder, data unsafe.Pointer, n int, size uintptr, base, depth int) ([]byte, error) {
	dst = appendHead(dst, majorArray, uint64(n))
	for i := range n {
		var err error
		if dst, err = element.append(dst, unsafe.Add(data, uintptr(i)*size), base, depth-1); err != nil {
			return dst, at(err, index(i))
		}
	}
	return dst, nil
}

func decodeElements(src []byte, pos int, element coder, data unsafe.Pointer, n int, size uintptr, depth int, owned bool) (int, error) {
	for i := range n {
		var err error
		if pos, err = element.decode(src, pos, unsafe.Add(data, uintptr(i)*size), depth-1, owned); err != nil {
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

func (a *arrayCoder) append(dst []byte, p unsafe.Pointer, base, depth int) ([]byte, error) {
	if depth == 0 {
		return dst, refuse(tooDeep)
	}
	return appendElements(dst, a.element, p, a.len, a.size, base, depth)
}

func (a *arrayCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool) (int, error) {
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
	return decodeElements(src, next, a.element, p, a.len, a.size, depth, owned)
}

func (a *arrayCoder) schema(w *schemaWriter) {
	if w.enter(a) {
		defer w.leave()
		w.WriteString(index(a.len))
		a.element.schema(w)
	}
}

// pointerCoder codes a pointer as null or what it points to. If that may be
// null itself, it is wrapped into an array of one.
type pointerCoder struct {
	traits
	typ     reflect.Type // what it points to
	element coder
	wrap    bool
}

func (c *pointerCoder) append(dst []byte, p unsafe.Pointer, base, depth int) ([]byte, error) {
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
	return c.element.append(dst, to, base, depth-1)
}

func (c *pointerCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool) (int, error) {
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
	to := reflect.New(c.typ).UnsafePointer()
	*(*unsafe.Pointer)(p) = to
	return c.element.decode(src, next, to, depth-1, owned)
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
