package payload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// decodedTypes are what hostile bytes are decoded as.
func decodedTypes() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[wide](), reflect.TypeFor[node](), reflect.TypeFor[weights](), reflect.TypeFor[small](),
		reflect.TypeFor[any](), reflect.TypeFor[[]float32](), reflect.TypeFor[[]int](), reflect.TypeFor[[3]int16](),
		reflect.TypeFor[[]byte](), reflect.TypeFor[string](), reflect.TypeFor[[]string](), reflect.TypeFor[[]struct{}](),
		reflect.TypeFor[map[string]any](), reflect.TypeFor[map[int8]*small](), reflect.TypeFor[time.Time](),
		reflect.TypeFor[[]netip.Addr](), reflect.TypeFor[[]bool](), reflect.TypeFor[***int](), reflect.TypeFor[uint8](),
		reflect.TypeFor[float32](), reflect.TypeFor[mirrored](), reflect.TypeFor[[]sparse](),
		reflect.TypeFor[[][]float32](),
		reflect.TypeFor[[]map[int]int](), reflect.TypeFor[map[int][32]int32](),
		reflect.TypeFor[[]*sparse](), reflect.TypeFor[map[int]map[int]bool](),
	}
}

// memoryOnce is the memory that decoding may allocate besides the value: the plans, the error and allocations of
// the runtime meanwhile.
const memoryOnce = 64 << 10

// mayTake returns the number of bytes that decoding n bytes may allocate: the budget, of which the allocator rounds
// each part up by a quarter at most.
func mayTake(n int) uint64 { return uint64(memoryOnce + memoryFor(n)/4*5) }

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func hostileInputs() [][]byte {
	var inputs [][]byte
	for _, length := range []uint64{1 << 16, 1 << 24, 1<<30 - 1, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		for major := byte(majorBytes); major <= majorMap; major++ {
			head := binary.BigEndian.AppendUint64([]byte{major<<5 | 27}, length)
			for _, before := range [][]byte{nil, {0x81}, {0x82, 0x80}, {0x82, 0x07}, {0xa1, 0x61, 0x61}, {0xa1, 0x01}, {0xd8, 0x55}, {0xd8, 0x4f},
				{0xc0}, {0xd9, 0xd9, 0xf7}} {
				in := append(append([]byte{}, before...), head...)
				inputs = append(inputs, in, append(slices.Clip(in), make([]byte, 100)...))
			}
		}
	}
	for _, b := range []byte{0x80, 0x81, 0x82, 0xa0, 0xf6, 0x00, 0x40, 0x60} {
		many := bytes.Repeat([]byte{b}, 5000)
		inputs = append(inputs, many, append([]byte{0x99, 0x13, 0x88}, many...), append([]byte{0xb9, 0x09, 0xc4}, many...))
	}
	return inputs
}

func TestR7HostileLengthsTakeNoMemory(t *testing.T) {
	codec := New(Limits{})
	for _, typ := range decodedTypes() {
		p, err := codec.Plan(typ)
		if err != nil {
			t.Fatal(err)
		}
		for _, src := range hostileInputs() {
			v := reflect.New(typ).Interface()
			before := allocated()
			err := p.Decode(src, v, true)
			if took := allocated() - before; took > mayTake(len(src)) {
				t.Errorf("%v: %d bytes took %d bytes of memory: % x...", typ, len(src), took, src[:9])
			}
			if e := new(DecodeError); err != nil && !errors.As(err, &e) {
				t.Errorf("%v: %v is no DecodeError", typ, err)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	full := exampleWide()
	codec := New(Limits{})
	for _, v := range []any{&full, &node{Kids: []node{{}}}, new(exampleSmall()), new(full.Info)} {
		p, err := codec.Plan(reflect.TypeOf(v).Elem())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(mustAppend(f, p, v))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, typ := range decodedTypes() {
			p, err := codec.Plan(typ)
			if err != nil {
				t.Fatal(err)
			}
			v := reflect.New(typ)
			before := allocated()
			err = p.Decode(src, v.Interface(), true)
			if took := allocated() - before; took > 1<<20+mayTake(len(src)) {
				t.Fatalf("%v: %d bytes took %d bytes of memory", typ, len(src), took)
			}
			if err != nil {
				if e := new(DecodeError); !errors.As(err, &e) || !v.Elem().IsZero() {
					t.Fatalf("%v: %v, leaving %v", typ, err, v.Elem())
				}
				continue
			}
			if _, err := p.Append(nil, v.Interface()); err != nil && strings.Contains(err.Error(), slimmer) {
				continue // its bytes were longer than ours
			}
			checkStable(t, p, typ, v)
		}
	})
}

// checkStable holds that what was decoded travels unchanged from then on.
func checkStable(t *testing.T, p *Plan, typ reflect.Type, v reflect.Value) {
	t.Helper()
	first := mustAppend(t, p, v.Interface())
	again := reflect.New(typ)
	if err := p.Decode(first, again.Interface(), false); err != nil {
		t.Fatalf("%v: our own bytes are refused: %v", typ, err)
	}
	if second := mustAppend(t, p, again.Interface()); !bytes.Equal(first, second) {
		t.Fatalf("%v: % x became % x", typ, first, second)
	}
}

func FuzzRoundTrip(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for _, v := range []any{new(wide), new(node), new(weights), new(map[string][]small), new([][2]*string)} {
			newGenerator(seed).fill(reflect.ValueOf(v).Elem())
			roundTrip(t, v)
		}
	})
}

func FuzzAgainstAnotherImplementation(f *testing.F) {
	f.Add(uint64(1), []byte{0x83, 0x01, 0xd8, 0x55, 0x44, 0, 0, 0, 0, 0xa1, 0x61, 0x61, 0xf5})
	f.Fuzz(func(t *testing.T, seed uint64, src []byte) {
		v, m := new(wide), new(mirrored)
		g := newGenerator(seed)
		g.fill(reflect.ValueOf(v).Elem())
		checkOracle(t, v)
		g.fill(reflect.ValueOf(m).Elem())
		m.Any = nil
		checkMirror(t, m)

		var ours, theirs any
		if mustPlan(t, reflect.TypeFor[any]()).Decode(src, &ours, false) != nil {
			return
		}
		// Of times, the oracle accepts other spellings than we do.
		if err := oracleDecoding(t).Unmarshal(src, &theirs); err != nil {
			if bytes.IndexByte(src, 0xc0) < 0 && bytes.IndexByte(src, 0xc1) < 0 {
				t.Fatalf("we accept % x as %v, but: %v", src, ours, err)
			}
		}
	})
}
