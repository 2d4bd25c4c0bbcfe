package payload

import (
	"encoding"
	"reflect"
	"time"
)

// builder makes the coders of one plan. A type has one coder, which is in seen before its parts are
// built, so that building a recursive type ends.
type builder struct {
	codec *Codec
	seen  map[reflect.Type]coder
	gaps  bool // some memory is not written by decoding
}

func (b *builder) coder(t reflect.Type) (coder, error) {
	if c, ok := b.seen[t]; ok {
		return c, nil
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return timeCoder{}, nil
	case reflect.TypeFor[time.Duration]():
		return durationCoder{}, nil
	}
	if c, err := b.own(t); c != nil || err != nil {
		return c, err
	}
	if c := scalarOf(t.Kind()); c != nil {
		return c, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return b.structure(t)
	case reflect.Slice:
		return b.slice(t)
	case reflect.Array:
		return b.array(t)
	case reflect.Map:
		return b.mapping(t)
	case reflect.Pointer:
		return b.pointer(t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return &anyCoder{codec: b.codec}, nil
		}
		return nil, refuse("an interface with methods (%s) cannot travel", t)
	}
	return nil, refuse("%s cannot travel", kindPhrase(t.Kind()))
}

func kindPhrase(k reflect.Kind) string {
	switch k {
	case reflect.Chan:
		return "a channel"
	case reflect.Func:
		return "a function"
	case reflect.Complex64, reflect.Complex128:
		return "a complex number"
	case reflect.UnsafePointer:
		return "an unsafe pointer"
	}
	return "a " + k.String()
}

func scalarOf(k reflect.Kind) coder {
	switch k {
	case reflect.Bool:
		return boolCoder{}
	case reflect.Int:
		return signedCoder[int]{}
	case reflect.Int8:
		return signedCoder[int8]{}
	case reflect.Int16:
		return signedCoder[int16]{}
	case reflect.Int32:
		return signedCoder[int32]{}
	case reflect.Int64:
		return signedCoder[int64]{}
	case reflect.Uint:
		return unsignedCoder[uint]{}
	case reflect.Uint8:
		return unsignedCoder[uint8]{}
	case reflect.Uint16:
		return unsignedCoder[uint16]{}
	case reflect.Uint32:
		return unsignedCoder[uint32]{}
	case reflect.Uint64:
		return unsignedCoder[uint64]{}
	case reflect.Float32:
		return float32Coder{}
	case reflect.Float64:
		return float64Coder{}
	case reflect.String:
		return stringCoder{}
	}
	return nil
}

// bytesOf reports which of the encoding interfaces a type, or the pointer to it, has.
func bytesOf(t reflect.Type) (appends, marshals, unmarshals bool) {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return false, false, false
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[encoding.BinaryAppender]()),
		p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()),
		p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]())
}

// own returns the coder of a type that writes its own bytes, or nil.
func (b *builder) own(t reflect.Type) (coder, error) {
	appends, marshals, unmarshals := bytesOf(t)
	writes := appends || marshals
	switch {
	case !writes && !unmarshals:
		return nil, nil
	case !unmarshals:
		return nil, refuse("%s writes its own bytes but has no UnmarshalBinary to parse them", t)
	case !writes:
		return nil, refuse("%s has UnmarshalBinary but no AppendBinary or MarshalBinary", t)
	}
	if name := inherits(t); name != "" {
		return nil, refuse("%s may inherit the own bytes of its embedded %s, without its other fields; name that field", t, name)
	}
	b.gaps = true
	return &ownCoder{typ: t, appends: appends}, nil
}

// inherits names an embedded field whose type writes or parses its own bytes.
func inherits(t reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	for f := range t.Fields() {
		if !f.Anonymous {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if a, m, u := bytesOf(inner); a || m || u || inner.Kind() == reflect.Interface {
			return f.Type.String()
		}
	}
	return ""
}

func (b *builder) structure(t reflect.Type) (coder, error) {
	s := &structCoder{}
	b.seen[t] = s
	if err := b.fields(s, t, 0, ""); err != nil {
		return nil, err
	}
	if len(s.fields) == 0 && t.NumField() > 0 {
		return nil, refuse("%s has fields but none that can travel", t)
	}
	s.min = 1
	for _, f := range s.fields {
		s.min = saturate(s.min, f.minBytes(), 1)
	}
	return s, nil
}

// fields adds the fields of t, which lies at offset in the struct of s. prefix
// is the path to t inside of that struct.
func (b *builder) fields(s *structCoder, t reflect.Type, offset uintptr, prefix string) error {
	for f := range t.Fields() {
		tag, tagged := f.Tag.Lookup("payload")
		if tagged && tag != "-" {
			return at(refuse("the tag payload:%q is not known; only \"-\" is", tag), prefix+"."+f.Name)
		}
		embedded := f.Anonymous && structOrPointer(f.Type)
		if tagged || !f.IsExported() && !embedded {
			b.gaps = true
			continue
		}
		if embedded && b.flattens(f.Type) {
			if err := b.fields(s, f.Type, offset+f.Offset, prefix+"."+f.Name); err != nil {
				return err
			}
			continue
		}
		c, err := b.coder(f.Type)
		if err != nil {
			return at(err, prefix+"."+f.Name)
		}
		s.add(c, f.Name, offset+f.Offset)
	}
	return nil
}

func structOrPointer(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// flattens reports whether the fields of an embedded type become fields of the struct around it.
func (b *builder) flattens(t reflect.Type) bool {
	appends, marshals, unmarshals := bytesOf(t)
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]() && !appends && !marshals && !unmarshals
}

func (b *builder) slice(t reflect.Type) (coder, error) {
	s := &sliceCoder{typ: t, size: t.Elem().Size(), limit: b.codec.limits.MaxElements}
	b.seen[t] = s
	element, err := b.coder(t.Elem())
	if err != nil {
		return nil, at(err, "[]")
	}
	if n, ok := b.numbers(t.Elem(), element); ok {
		c := &tensorCoder{traits{1, true}, n}
		b.seen[t] = c
		return c, nil
	}
	s.element, s.generic = element, element.plain()
	return s, nil
}

func (b *builder) array(t reflect.Type) (coder, error) {
	element, err := b.coder(t.Elem())
	if err != nil {
		return nil, at(err, "[]")
	}
	if n, ok := b.numbers(t.Elem(), element); ok {
		// A plain array of numbers takes at least a byte for each.
		c := &tensorArrayCoder{traits: traits{saturate(1, 1, t.Len()), true}, numbers: n, len: t.Len()}
		c.prepare()
		return c, nil
	}
	least := saturate(1, element.minBytes(), t.Len())
	return &arrayCoder{traits{least, element.plain()}, element, t.Elem().Size(), t.Len()}, nil
}

// numbers describes tensors of t, unless t writes its own bytes.
func (b *builder) numbers(t reflect.Type, element coder) (numbers, bool) {
	if _, own := element.(*ownCoder); own {
		return numbers{}, false
	}
	return newNumbers(t, element, b.codec)
}

func (b *builder) mapping(t reflect.Type) (coder, error) {
	m := &mapCoder{typ: t, limit: b.codec.limits.MaxElements}
	b.seen[t] = m
	if a, w, u := bytesOf(t.Key()); a || w || u {
		return nil, refuse("a map with keys of type %s, which writes its own bytes, cannot travel", t.Key())
	}
	switch m.key = scalarOf(t.Key().Kind()); m.key.(type) {
	case nil, boolCoder, float32Coder, float64Coder:
		return nil, refuse("a map with keys of type %s cannot travel; use strings or integers", t.Key())
	}
	var err error
	if m.value, err = b.coder(t.Elem()); err != nil {
		return nil, at(err, "[]")
	}
	m.generic = m.value.plain()
	switch m.key.(type) {
	case unsignedCoder[uint], unsignedCoder[uint64]:
		m.generic = false // the keys of a map[int64]any may be narrower
	}
	return m, nil
}

func (b *builder) pointer(t reflect.Type) (coder, error) {
	c := &pointerCoder{typ: t.Elem()}
	b.seen[t] = c
	var err error
	if c.element, err = b.coder(t.Elem()); err != nil {
		return nil, err
	}
	switch c.element.(type) {
	case *pointerCoder, *sliceCoder, *tensorCoder, *mapCoder, *anyCoder:
		c.wrap = true
	}
	return c, nil
}
