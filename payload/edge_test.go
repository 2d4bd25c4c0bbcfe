package payload

import (
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// TestIntegersAtEachEndOfTheirHead sends numbers on both sides of every size of a head, in each place where
// a field can be: alone, in a struct, in a tensor, in any.
func TestIntegersAtEachEndOfTheirHead(t *testing.T) {
	type fields struct {
		I8  int8
		I16 int16
		I32 int32
		I64 int64
		I   int
		U8  uint8
		U16 uint16
		U32 uint32
		U64 uint64
		U   uint
		F32 float32
		F64 float64
		Yes bool
		Any any
	}
	for _, n := range []int64{
		0, 1, 23, 24, 25, 127, 128, 255, 256, 32767, 32768, 65535, 65536, math.MaxInt32 - 1, math.MaxInt32, math.MaxInt32 + 1,
		math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64 - 1, math.MaxInt64, -1, -23, -24, -25, -26, -256, -257, -65536, -65537,
		math.MinInt32, math.MinInt64 + 1, math.MinInt64,
	} {
		roundTrip(t, &n)
		roundTrip(t, new(uint64(n)))
		roundTrip(t, &fields{int8(n), int16(n), int32(n), n, int(n), uint8(n), uint16(n), uint32(n), uint64(n), uint(n), float32(n),
			float64(n), n%2 == 0, n})
		roundTrip(t, &[]int64{n})
		roundTrip(t, &map[int64]string{n: "x"})
		roundTrip(t, new(any(n)))
	}
	roundTrip(t, new(any(uint64(math.MaxInt64+1))))
}

// TestSpellingsAtTheirBounds is the table of bytes that are just accepted, and what they mean.
func TestSpellingsAtTheirBounds(t *testing.T) {
	for name, c := range map[string]struct {
		hex  string
		want any // *T
	}{
		"the largest int64 in any":    {"1b 7fffffffffffffff", new(any(int64(math.MaxInt64)))},
		"the next one in any":         {"1b 8000000000000000", new(any(uint64(1 << 63)))},
		"the smallest int64 in any":   {"3b 7fffffffffffffff", new(any(int64(math.MinInt64)))},
		"bytes of its own, described": {"d9d9f7 42 0102", &blob{[]byte{1, 2}}},
		"such bytes within a list":    {"81 d9d9f7 42 0102", &[]blob{{[]byte{1, 2}}}},
		"null over a map":             {"f6", &map[string]int{}},
		"a wide head in a struct":     {"82 1a 00000005 18 07", &struct{ A, B int32 }{5, 7}},
		"a wide head for an int64":    {"81 1b 0000000000000005", &struct{ A int64 }{5}},
		"a half float in a struct": {"82 f93e00 f93e00", &struct {
			A float32
			B float64
		}{1.5, 1.5}},
	} {
		typ := reflect.TypeOf(c.want).Elem()
		got := reflect.New(typ)
		if typ.Kind() == reflect.Map {
			got.Elem().Set(reflect.ValueOf(map[string]int{"old": 1}))
			reflect.ValueOf(c.want).Elem().SetZero()
		}
		if err := mustPlan(t, typ).Decode(unhex(t, c.hex), got.Interface(), false); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(c.want, got.Interface()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSpellingsBeyondTheirBounds is the table of bytes that are just refused.
func TestSpellingsBeyondTheirBounds(t *testing.T) {
	for name, c := range map[string]struct {
		typ       reflect.Type
		hex, what string
	}{
		"clamped bytes for int8":       {reflect.TypeFor[[]int8](), "d844 41 07", "tag 68 where a tensor of int8"},
		"an integer below int64":       {reflect.TypeFor[any](), "3b 8000000000000000", "beyond the range of int64"},
		"two fields for a struct of 3": {reflect.TypeFor[struct{ A, B, C int32 }](), "82 01 02", "2 fields where 3 belong"},
		"a struct that is cut": {reflect.TypeFor[struct{ A, B float64 }](), "82 fb0000000000000000 fb00000000000000",
			"ends too early"},
		"a float that is cut": {reflect.TypeFor[struct{ A, B float32 }](), "82 fa00000000 fa000000", "ends too early"},
		"no boolean":          {reflect.TypeFor[struct{ A, B bool }](), "82 f5 f6", "null where a boolean"},
	} {
		err := mustPlan(t, c.typ).Decode(unhex(t, c.hex), reflect.New(c.typ).Interface(), false)
		if err == nil || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s: %v, want %q", name, err, c.what)
		}
	}
}

func TestPayloadOfTheLargestSizeIsTaken(t *testing.T) {
	c := New(Limits{MaxBytes: 20})
	p, err := c.Plan(reflect.TypeFor[string]())
	if err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{19: true, 20: false} {
		text := strings.Repeat("x", n)
		_, sendErr := p.Append(nil, &text)
		var got string
		err := p.Decode(append([]byte{0x60 + byte(n)}, text...), &got, false)
		if (err == nil) != ok || (sendErr == nil) != ok || ok && got != text {
			t.Errorf("%d bytes and a head: %q, %v; sent: %v", n, got, err, sendErr)
		}
	}
}

// The memory of a tensor is bounded where it comes as a plain array, which takes less as bytes.
func TestTensorOfTheLargestSizeIsTaken(t *testing.T) {
	p, err := New(Limits{MaxBytes: 20}).Plan(reflect.TypeFor[[]float32]())
	if err != nil {
		t.Fatal(err)
	}
	for src, ok := range map[string]bool{"85 0000000000": true, "86 000000000000": false} {
		got := []float32{1}
		if err := p.Decode(unhex(t, src), &got, false); (err == nil) != ok || ok && !cmp.Equal(got, make([]float32, 5)) {
			t.Errorf("%s: %v, %v", src, got, err)
		}
	}
}

// TestDepthIsBoundedInEveryKindOfNesting nests each kind once more than the limit.
func TestDepthIsBoundedInEveryKindOfNesting(t *testing.T) {
	type list []list
	type table map[string]table
	type pair [1][]pair
	c := New(Limits{MaxDepth: 5})
	for name, v := range map[string]struct {
		typ        reflect.Type
		open, leaf string
		perLevel   int // of depth, for each open
	}{
		"slices": {reflect.TypeFor[list](), "81", "80", 1}, "maps": {reflect.TypeFor[table](), "a1 60", "a0", 1},
		"arrays": {reflect.TypeFor[pair](), "81 81", "81 80", 2}, "any": {reflect.TypeFor[any](), "81", "80",
			1}, "maps in any": {reflect.TypeFor[any](), "a1 60", "a0", 1},
	} {
		p, err := c.Plan(v.typ)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		deepest := 0
		for levels := range 20 {
			got := reflect.New(v.typ)
			src := unhex(t, strings.Repeat(v.open, levels)+v.leaf)
			err := p.Decode(src, got.Interface(), false)
			if err != nil && !strings.Contains(err.Error(), "MaxDepth") {
				t.Errorf("%s, %d levels: %v", name, levels, err)
			}
			if err != nil { // what cannot be read is not written either
				if err := deep(t, v.typ).Decode(src, got.Interface(), false); err != nil {
					t.Fatal(err)
				}
				if _, err := p.Append(nil, got.Interface()); err == nil {
					t.Errorf("%s, %d levels: written", name, levels)
				}
				continue
			}
			deepest = levels + 1
			// A payload that can be read can be written, to the same bytes.
			if b, err := p.Append(nil, got.Interface()); err != nil || hex.EncodeToString(b) != hex.EncodeToString(src) {
				t.Errorf("%s, %d levels: written as % x, %v", name, levels, b, err)
			}
		}
		if deepest*v.perLevel < 4 || deepest*v.perLevel > 6 {
			t.Errorf("%s: %d levels of 5", name, deepest*v.perLevel)
		}
	}
}

// deep returns a plan whose limit is lower than the nesting of the test.
func deep(t *testing.T, typ reflect.Type) *Plan {
	t.Helper()
	p, err := New(Limits{MaxDepth: 100}).Plan(typ)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPathOfALongKeyIsCut is the table of how a key is shown in the path of an error.
func TestPathOfALongKeyIsCut(t *testing.T) {
	exact := strings.Repeat("k", 64)
	for want, key := range map[string]any{
		`["` + exact + `"]`: exact, `["` + exact + `"...]`: exact + "k", "[7]": int64(7), "[-7]": int64(-7), `[""]`: "",
	} {
		p := mustPlan(t, reflect.TypeOf(key))
		v := reflect.New(reflect.TypeOf(key))
		v.Elem().Set(reflect.ValueOf(key))
		if got := keySegment(mustAppend(t, p, v.Interface())); got != want {
			t.Errorf("%v: %s, want %s", key, got, want)
		}
	}
}

// shrinking returns one byte less than it was given.
type shrinking struct{}

func (shrinking) AppendBinary(dst []byte) ([]byte, error) { return dst[:len(dst)-1], nil }
func (shrinking) MarshalBinary() ([]byte, error)          { return nil, nil }
func (*shrinking) UnmarshalBinary([]byte) error           { return nil }

func TestOwnBytesThatRemoveBytesOfOthersAreRefused(t *testing.T) {
	for _, v := range []any{&shrinking{}, &[]shrinking{{}}} {
		p := mustPlan(t, reflect.TypeOf(v).Elem())
		out, err := p.Append([]byte("before"), v)
		if err == nil || !strings.Contains(err.Error(), "less than it was given") || string(out) != "before" {
			t.Errorf("%T: %q, %v", v, out, err)
		}
	}
}

func TestTypeThatPointsToItself(t *testing.T) {
	type loop *loop
	p := mustPlan(t, reflect.TypeFor[loop]())
	var inner loop
	v := loop(&inner)
	b := mustAppend(t, p, &v)
	var got loop
	if err := p.Decode(b, &got, false); err != nil || got == nil || *got != nil {
		t.Errorf("% x: %v, %v", b, got, err)
	}
}

// TestIntegersOfAHostWith32Bits writes the 8 bytes of an int to 4, as such a host does.
func TestIntegersOfAHostWith32Bits(t *testing.T) {
	c := New(Limits{})
	ints, _ := newNumbers(reflect.TypeFor[int](), signedCoder[int]{}, c)
	uints, _ := newNumbers(reflect.TypeFor[uint](), unsignedCoder[uint]{}, c)
	for _, tt := range []struct {
		numbers numbers
		hex     string // big-endian, as on no host with a fault
		want    []uint32
		fails   bool
	}{
		{ints, "000000007fffffff ffffffff80000000 ffffffffffffffff", []uint32{1<<31 - 1, 1 << 31, 1<<32 - 1}, false},
		{ints, "0000000000000001 0000000080000000", nil, true},
		{ints, "ffffffff7fffffff", nil, true},
		{uints, "00000000ffffffff 0000000000000007", []uint32{1<<32 - 1, 7}, false},
		{uints, "0000000100000000", nil, true},
		{uints, "ffffffffffffffff", nil, true},
	} {
		n := tt.numbers
		n.memory = 4
		block := unhex(t, tt.hex)
		for _, swap := range []bool{true, false} {
			f := found{block: block, count: len(block) / 8, next: len(block), swap: !n.swap}
			if !swap {
				f.block, f.swap = append([]byte{}, block...), n.swap
				swapBytes(f.block, 8)
			}
			got := make([]uint32, f.count)
			_, err := n.fill(nil, f, unsafe.Pointer(unsafe.SliceData(got)))
			if (err != nil) != tt.fails || err != nil && !strings.Contains(err.Error(), "beyond the range of this host's int") {
				t.Errorf("%s, swapped %v: %v", tt.hex, swap, err)
			}
			if err == nil && !cmp.Equal(got, tt.want) {
				t.Errorf("%s, swapped %v: %v, want %v", tt.hex, swap, got, tt.want)
			}
		}
		large := found{block: make([]byte, blockBytes)}
		if n.aliases(large) {
			t.Errorf("%s: 8 bytes are used as 4", n.word)
		}
	}
}
