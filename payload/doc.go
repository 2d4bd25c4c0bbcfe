// Package payload turns Go values into bytes and back, for events that travel
// between the nodes of a job.
//
// The bytes are CBOR (RFC 8949): data only, readable from any language.
// Tensors, that is slices and arrays of numbers, are the typed arrays of RFC
// 8746: raw little-endian blocks, written and read at the speed of a memory
// copy. The exact bytes are in docs/wire.md, section "Payloads".
//
//	codec := payload.New(payload.Limits{})
//	plan, err := codec.Plan(reflect.TypeFor[Weights]()) // once per type
//	if err != nil {
//		return err // names what cannot travel: "Layers[].Hook: a function cannot travel"
//	}
//	buf, err = plan.Append(buf[:0], &weights) // no allocation if buf is large enough
//	...
//	var got Weights
//	err = plan.Decode(buf, &got, true) // true: got may alias buf
//
// # What travels
//
// Booleans, integers, floats (bit for bit, NaN included), strings (UTF-8),
// slices, arrays, maps with string or integer keys, pointers, structs,
// recursive types, [time.Time] (with its offset, without the name of its zone
// and without the monotonic clock) and [time.Duration]. A nil slice, map or
// pointer arrives as nil, an empty one as empty. Encoding a cyclic value fails at
// [Limits.MaxDepth].
//
// Of a struct, exported fields travel, in their order, except fields with the tag payload:"-". The
// fields of embedded structs travel as if they were written in the struct itself. A struct that has
// fields but none that travels is refused, since sending nothing is rarely intended.
//
// A type with [encoding.BinaryAppender] or [encoding.BinaryMarshaler], and
// [encoding.BinaryUnmarshaler], travels as the bytes that these methods write and parse.
//
// In a field of type any travel: nil, booleans, numbers, strings, times,
// tensors, and slices and maps of these. They arrive as nil, bool, int64 (or
// uint64 beyond its range), float32, float64, string, [time.Time], a slice of
// the tensor's number type ([]int arrives as []int64), []any, and
// map[string]any or map[int64]any. Structs do not travel in an any, for they
// could not arrive unchanged.
//
// Other interfaces, channels, functions, complex numbers, uintptr and
// [unsafe.Pointer] cannot travel.
//
// # Memory
//
// [Plan.Decode] overwrites the value completely, as if it had been zero before: no old data remains and no memory of the old
// value is reused. Before each allocation, Decode checks the length against the remaining bytes and takes the memory from a
// budget: besides the value passed to Decode, a value takes at most 64 KiB plus 16 bytes for each byte of its payload; a large
// value takes at most 64 MiB plus 4 bytes for each. This counts elements of slices with their Go sizes, including fields that
// do not travel, entries of maps including the places that the runtime keeps free, strings, the targets of pointers and the
// contents of interfaces. It does not count what the allocator rounds up, nor what a type that parses its own bytes allocates.
//
// [Plan.Append] refuses a value that exceeds this budget, so that emitting it fails. Tensors take
// as much memory as bytes, lists of structs several times as much. Only large values of almost
// empty parts exceed it, such as 10,000 nil slices, or 300 maps of one short entry, without other
// data. If two hosts have types of different sizes for one schema, each counts its own.
//
// # Concurrency and errors
//
// A [Codec] and its [Plan]s are safe for concurrent use. The error for a value that cannot travel
// is an [*EncodeError]; the error for input that is not a value of the type is a [*DecodeError].
// Both name the path to the fault inside the value.
package payload
