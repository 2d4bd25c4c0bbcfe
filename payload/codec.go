package payload

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"reflect"
	"sync"
	"unsafe"
)

// Limits bound the payloads that a [Codec] writes and accepts. Zero fields take their defaults. The
// sender checks the limits too, so that emitting a value that is too large fails.
type Limits struct {
	// MaxBytes is the largest payload, in bytes. Default: 1 GiB.
	MaxBytes int
	// MaxElements is the largest number of elements of one slice or map. It does not limit tensors,
	// which take their own size in the payload. Default: 16,777,216.
	MaxElements int
	// MaxDepth is the maximum nesting of structs, slices, arrays, maps and pointers in one value.
	// It ends the encoding of cyclic values. Default: 256.
	MaxDepth int
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 1 << 30
	}
	if l.MaxElements <= 0 {
		l.MaxElements = 1 << 24
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = 256
	}
	return l
}

// Codec makes and keeps one [Plan] per Go type. It is safe for concurrent use.
type Codec struct {
	limits Limits
	swap   bool     // the host is big-endian
	plans  sync.Map // reflect.Type -> *Plan
}

// New returns a codec with the given limits.
func New(l Limits) *Codec {
	return &Codec{
		limits: l.withDefaults(),
		swap:   binary.NativeEndian.Uint16([]byte{1, 0}) != 1,
	}
}

// Plan returns the encoding of values of type t. Each type is analysed once per Codec. The error
// for a type that cannot travel is an [*EncodeError] with the path to the part that cannot.
func (c *Codec) Plan(t reflect.Type) (*Plan, error) {
	if p, ok := c.plans.Load(t); ok {
		return p.(*Plan), nil
	}
	if t == nil {
		return nil, finish(refuse("nil is not a type"), "nil")
	}
	b := builder{codec: c, seen: map[reflect.Type]coder{}}
	root, err := b.coder(t)
	if err != nil {
		return nil, finish(err, t.String())
	}
	schema, err := schemaOf(root)
	if err != nil {
		return nil, finish(err, t.String())
	}
	hash := fnv.New64a()
	hash.Write([]byte(formatName + schema))
	p := &Plan{
		limits:      c.limits,
		pointer:     reflect.PointerTo(t),
		root:        root,
		gaps:        b.gaps,
		schema:      schema,
		fingerprint: hash.Sum64(),
		uncounted:   boundless(root),
	}
	kept, _ := c.plans.LoadOrStore(t, p)
	return kept.(*Plan), nil
}

// Plan is the encoding of the values of one type T. It is immutable and safe for concurrent use.
type Plan struct {
	limits      Limits
	pointer     reflect.Type // *T
	root        coder
	gaps        bool // T has memory that decoding does not write
	schema      string
	fingerprint uint64
	uncounted   int // bytes of payloads that cannot exceed their budget
}

// Append appends the encoding of the value that v, a *T, points to, and returns the extended
// buffer. Blocks are aligned relative to len(dst). Append does not allocate if dst has room, unless
// the value holds maps, an any or types that write their own bytes. On an error, an [*EncodeError],
// it returns dst unchanged.
func (p *Plan) Append(dst []byte, v any) ([]byte, error) {
	ptr, fault := p.target(v)
	if fault != "" {
		return dst, finish(refuse("%s", fault), p.pointer.Elem().String())
	}
	var b *budget
	if p.uncounted < math.MaxInt {
		b = newBudget(0)
	}
	out, err := p.root.append(dst, ptr, len(dst), p.limits.MaxDepth, b)
	if b != nil {
		if err == nil {
			err = b.check(len(out) - len(dst))
		}
		budgets.Put(b)
	}
	if err == nil && len(out)-len(dst) > p.limits.MaxBytes {
		err = refuse("%d bytes; the limit is %d", len(out)-len(dst), p.limits.MaxBytes)
	}
	if err != nil {
		return dst, finish(err, p.pointer.Elem().String())
	}
	return out, nil
}

// Decode parses src, which must hold one encoded T and nothing else, into the value that v, a *T,
// points to. Decode overwrites the value completely, as if it had been zero; it does not change the
// memory that the value referred to.
//
// If owned is false, the value does not refer to src afterwards. If owned is true, src belongs to
// the value from now on: tensors of 4 KiB or more alias it where they are aligned (they are if
// Append wrote src and src starts at an address that is a multiple of 8), with a capacity equal to
// their length. An aliased tensor keeps all of src in memory.
//
// On an error, a [*DecodeError], the value is zero.
func (p *Plan) Decode(src []byte, v any, owned bool) error {
	ptr, fault := p.target(v)
	if fault != "" {
		return finish(invalid(0, "%s", fault), p.pointer.Elem().String())
	}
	if len(src) > p.limits.MaxBytes {
		reflect.ValueOf(v).Elem().SetZero()
		return finish(invalid(0, "%d bytes; the limit is %d", len(src), p.limits.MaxBytes), p.pointer.Elem().String())
	}
	if p.gaps {
		reflect.ValueOf(v).Elem().SetZero()
	}
	var b *budget
	if len(src) > p.uncounted {
		b = newBudget(len(src))
	}
	end, err := p.root.decode(src, skipSelf(src, 0), ptr, p.limits.MaxDepth, owned, b)
	if b != nil {
		budgets.Put(b)
	}
	if err == nil && end < len(src) {
		err = invalid(end, "%d bytes after the value", len(src)-end)
	}
	if err != nil {
		reflect.ValueOf(v).Elem().SetZero()
		return finish(err, p.pointer.Elem().String())
	}
	return nil
}

// target returns the address of the value in v, or a description of the fault in v.
func (p *Plan) target(v any) (unsafe.Pointer, string) {
	if reflect.TypeOf(v) != p.pointer {
		return nil, "called with a " + typeName(reflect.TypeOf(v)) + " where a " + p.pointer.String() + " belongs"
	}
	ptr := (*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1] // an interface is a type and, here, a pointer
	if ptr == nil {
		return nil, "called with a nil " + p.pointer.String()
	}
	return ptr, ""
}

func typeName(t reflect.Type) string {
	if t == nil {
		return "nil"
	}
	return t.String()
}

// Fingerprint is the FNV-1a hash, in 64 bits, of the name of the format and
// [Plan.Schema]. It is equal for two types if and only if (except for a collision
// of the hash) their schemas are. It is the same in every process and build.
func (p *Plan) Fingerprint() uint64 { return p.fingerprint }

// Schema returns the shape of T in words, such as "struct{Obs:[]float32 Reward:float64}". A payload
// of one type can be decoded as another type with the same schema. It does not depend on the names
// of types, except for those that write their own bytes, nor on the host: int is an int64.
func (p *Plan) Schema() string { return p.schema }
