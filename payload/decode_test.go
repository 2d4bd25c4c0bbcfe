package payload

import (
	"encoding/hex"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestForeignSpellingsAreAccepted(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		want      any // *T
	}{
		{"half float", "f9 3e00", new(float32(1.5))},
		{"half subnormal", "f9 0001", new(5.960464477539063e-8)},
		{"half infinity", "f9 fc00", new(math.Inf(-1))},
		{"half infinity for a float32", "f9 7c00", new(float32(math.Inf(1)))},
		{"half that is no number", "f9 7e00", new(math.NaN())},
		{"integer for a float", "03", new(3.0)},
		{"negative integer for a float", "22", new(float32(-3))},
		{"double for a float32", "fb 3ff8000000000000", new(float32(1.5))},
		{"wide head", "1b 0000000000000005", new(uint8(5))},
		{"self-described", "d9d9f7 05", new(5)},
		{"undefined for nil", "f7", new([]string(nil))},
		{"plain array for a tensor", "83 01 fa3fc00000 f93e00", new([]float32{1, 1.5, 1.5})},
		{"plain array for an array", "82 20 02", new([2]int8{-1, 2})},
		{"plain array for bytes", "82 01 18ff", new([]byte{1, 255})},
		{"empty plain array", "80", new([]float64{})},
		{"big-endian float32", "d851 48 3f800000 40000000", new([]float32{1, 2})},
		{"big-endian int16", "d849 44 0001 ff00", new([2]int16{1, -256})},
		{"tagged bytes", "d840 41 07", new([]byte{7})},
		{"clamped bytes", "d844 41 07", new([]byte{7})},
		{"tensor in any", "d851 44 3f800000", new(any([]float32{1}))},
		{"clamped bytes in any", "d844 41 07", new(any([]byte{7}))},
		{"half in any", "f9 3e00", new(any(float32(1.5)))},
		{"time in seconds", "c1 05", new(time.Unix(5, 0).UTC())},
		{"time in seconds without tag", "fb bff8000000000000", new(time.Unix(-2, 5e8).UTC())},
		{"null for the zero time", "f6", new(time.Time{})},
		{"time without tag", "74 313937302d30312d30315430303a30303a30355a", new(time.Unix(5, 0).UTC())},
	} {
		t.Run(c.name, func(t *testing.T) {
			typ := reflect.TypeOf(c.want).Elem()
			got := reflect.New(typ)
			if err := mustPlan(t, typ).Decode(unhex(t, c.hex), got.Interface(), false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Interface(), sameBits); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestFaultsAreNamedWithPathAndOffset(t *testing.T) {
	type pair struct {
		A int8
		B []small
	}
	for _, c := range []struct {
		typ        reflect.Type
		hex, path  string
		offset     int
		what, note string
	}{
		{reflect.TypeFor[int](), "", "", 0, "ends too early", "empty"},
		{reflect.TypeFor[int](), "19 01", "", 0, "ends too early", "cut head"},
		{reflect.TypeFor[int](), "0505", "", 1, "1 bytes after the value", ""},
		{reflect.TypeFor[int](), "1c", "", 0, "reserved", ""},
		{reflect.TypeFor[[]string](), "9f ff", "", 0, "indefinite", ""},
		{reflect.TypeFor[bool](), "01", "", 0, "an unsigned integer where a boolean belongs", ""},
		{reflect.TypeFor[bool](), "f8 14", "", 0, "unassigned simple", ""},
		{reflect.TypeFor[bool](), "e0", "", 0, "unassigned simple", ""},
		{reflect.TypeFor[uint8](), "19 0100", "", 0, "range of uint8", ""},
		{reflect.TypeFor[uint8](), "20", "", 0, "a negative integer", ""},
		{reflect.TypeFor[int64](), "1b 8000000000000000", "", 0, "range of int64", ""},
		{reflect.TypeFor[int64](), "3b 8000000000000000", "", 0, "range of int64", ""},
		{reflect.TypeFor[int8](), "61 61", "", 0, "a text string where an int8", ""},
		{reflect.TypeFor[float32](), "fb 7fefffffffffffff", "", 0, "range of float32", ""},
		{reflect.TypeFor[float64](), "1b ffffffffffffffff", "", 0, "exactly", ""},
		{reflect.TypeFor[float64](), "f6", "", 0, "null where a float", ""},
		{reflect.TypeFor[string](), "61 ff", "", 0, "not UTF-8", ""},
		{reflect.TypeFor[string](), "7a ffffffff", "", 0, "4294967295 bytes where 0 are left", ""},
		{reflect.TypeFor[string](), "41 61", "", 0, "a byte string where", ""},
		{reflect.TypeFor[pair](), "81 01", "", 0, "1 fields where 2 belong", ""},
		{reflect.TypeFor[pair](), "a0", "", 0, "a map where the array", ""},
		{reflect.TypeFor[pair](), "82 01 81 85 01 02 d855 50 0000000000", "B[0].X", 8, "16 bytes where 5 are left", ""},
		{reflect.TypeFor[pair](), "82 01 9b ffffffffffffffff", "B", 2, "do not fit", ""},
		{reflect.TypeFor[pair](), "82 01 82 f6 f6 f6 f6 f6 f6", "B", 2, "2 elements do not fit", "each takes more"},
		{reflect.TypeFor[[2]string](), "81 60", "", 0, "1 elements where 2 belong", ""},
		{reflect.TypeFor[[2]string](), "f6", "", 0, "null where", ""},
		{reflect.TypeFor[[2]int8](), "f6", "", 0, "null where 2 numbers", ""},
		{reflect.TypeFor[[2]int8](), "d848 41 00", "", 0, "1 numbers where 2", ""},
		{reflect.TypeFor[[]float32](), "d855 43 000000", "", 2, "whole number", ""},
		{reflect.TypeFor[[]float32](), "d856 40", "", 0, "tag 86 where", ""},
		{reflect.TypeFor[[]float32](), "d855 80", "", 2, "an array where the byte string", ""},
		{reflect.TypeFor[[]float32](), "44 00000000", "", 0, "a byte string where", ""},
		{reflect.TypeFor[[]float32](), "82 01 60", "[1]", 2, "a text string", ""},
		{reflect.TypeFor[map[string]int](), "a2 6161 01 6161 02", `["a"]`, 4, "there before", ""},
		{reflect.TypeFor[map[string]int](), "a1 01 01", "[key 0]", 1, "an unsigned", ""},
		{reflect.TypeFor[map[int]bool](), "a1 38 18 01", "[-25]", 3, "a boolean", ""},
		{reflect.TypeFor[map[int]bool](), "ba ffffffff", "", 0, "do not fit", ""},
		{reflect.TypeFor[map[int]bool](), "80", "", 0, "an array where a map", ""},
		{reflect.TypeFor[**int](), "01", "", 0, "null or an array of one", ""},
		{reflect.TypeFor[netip.Addr](), "41 00", "", 0, "its own decoding", ""},
		{reflect.TypeFor[netip.Addr](), "61 61", "", 0, "byte string of a netip.Addr", ""},
		{reflect.TypeFor[time.Time](), "c0 61 61", "", 1, "not RFC 3339", ""},
		{reflect.TypeFor[time.Time](), "c0 01", "", 1, "the text of a time", ""},
		{reflect.TypeFor[time.Time](), "c1 61 61", "", 1, "the seconds of a time", ""},
		{reflect.TypeFor[time.Time](), "c2 40", "", 0, "tag 2", ""},
		{reflect.TypeFor[time.Time](), "f9 7e00", "", 0, "outside of the years", ""},
		{reflect.TypeFor[any](), "c2 40", "", 0, "tag 2 is not known", ""},
		{reflect.TypeFor[any](), "a2 01 01 01 01", "[1]", 3, "there before", ""},
		{reflect.TypeFor[any](), "a1 40 01", "[key 0]", 1, "a byte string", ""},
		{reflect.TypeFor[any](), "82 01 81 3b ffffffffffffffff", "[1][0]", 3, "range of int64", ""},
		{reflect.TypeFor[any](), "e0", "", 0, "unassigned", ""},
		{reflect.TypeFor[any](), strings.Repeat("81", 300) + "01", strings.Repeat("[0]", 256), 256, "MaxDepth", ""},
		{reflect.TypeFor[node](), strings.Repeat("84 01", 300), "", 256, "MaxDepth", "deep list"},
	} {
		got := reflect.New(c.typ)
		err := mustPlan(t, c.typ).Decode(unhex(t, c.hex), got.Interface(), false)
		var e *DecodeError
		if !errors.As(err, &e) {
			t.Errorf("%v from %s: %v, want a DecodeError", c.typ, c.hex, err)
			continue
		}
		if (c.note != "deep list" && e.Path != c.path) || e.Offset != c.offset || !strings.Contains(e.What, c.what) {
			t.Errorf("%v from %s: path %q at %d: %q; want %q at %d: %q", c.typ, c.hex, e.Path, e.Offset, e.What, c.path, c.offset, c.what)
		}
		if !got.Elem().IsZero() {
			t.Errorf("%v from %s: not zero after an error: %v", c.typ, c.hex, got.Elem())
		}
	}
}

func TestLimitsHoldForTheReceiver(t *testing.T) {
	c := New(Limits{MaxBytes: 20, MaxElements: 3})
	for _, tc := range []struct {
		typ  reflect.Type
		hex  string
		what string
	}{
		{reflect.TypeFor[[]string](), "84 60 60 60 60", "4 elements; the limit is 3"},
		{reflect.TypeFor[any](), "84 60 60 60 60", "4 elements; the limit is 3"},
		{reflect.TypeFor[any](), "a4 00 60 01 60 02 60 03 60", "4 elements; the limit is 3"},
		{reflect.TypeFor[map[int]int](), "a4 00 00 01 00 02 00 03 00", "4 elements; the limit is 3"},
		{reflect.TypeFor[[]float64](), "83 00 00 00", "the limit is 20 bytes"},
		{reflect.TypeFor[string](), strings.Repeat("00", 21), "21 bytes; the limit is 20"},
	} {
		p, err := c.Plan(tc.typ)
		if err != nil {
			t.Fatal(err)
		}
		err = p.Decode(unhex(t, tc.hex), reflect.New(tc.typ).Interface(), false)
		if err == nil || !strings.Contains(err.Error(), tc.what) {
			t.Errorf("%v: %v, want %q", tc.typ, err, tc.what)
		}
	}
}

// misaligned returns b at an address that is not a multiple of 2.
func misaligned(b []byte) []byte {
	room := make([]byte, len(b)+9)
	shift := 1 + int(-uintptr(unsafe.Pointer(&room[0]))%8)
	return room[shift : shift+copy(room[shift:], b)]
}

func inside[T any](s []T, b []byte) bool {
	p, start := uintptr(unsafe.Pointer(unsafe.SliceData(s))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return p >= start && p < start+uintptr(len(b))
}

func TestOnlyLargeAlignedOwnedTensorsAlias(t *testing.T) {
	p := mustPlan(t, reflect.TypeFor[weights]())
	sent := weights{Layers: []layer{{Data: make([]float32, 1024)}, {Data: make([]float32, 1023)}}}
	b := mustAppend(t, p, &sent)
	for _, c := range []struct {
		src            []byte
		owned          bool
		large, little1 bool
	}{
		{b, true, true, false},
		{b, false, false, false},
		{misaligned(b), true, false, false},
	} {
		var got weights
		if err := p.Decode(c.src, &got, c.owned); err != nil {
			t.Fatal(err)
		}
		large, small := got.Layers[0].Data, got.Layers[1].Data
		if inside(large, c.src) != c.large || inside(small, c.src) {
			t.Errorf("owned %v: large aliases: %v, want %v; small aliases: %v", c.owned, inside(large, c.src), c.large, inside(small, c.src))
		}
		if cap(large) != len(large) {
			t.Errorf("owned %v: an append to the tensor would write over its neighbour", c.owned)
		}
		if uintptr(unsafe.Pointer(&large[0]))%4 != 0 || uintptr(unsafe.Pointer(&small[0]))%4 != 0 {
			t.Errorf("owned %v: a misaligned tensor", c.owned)
		}
	}
}

func TestLargeBlocksStartAligned(t *testing.T) {
	for _, n := range []int{blockBytes, 65535 &^ 7, 65536, 1 << 20} {
		for offset := range 64 {
			head := appendBlockHead(make([]byte, offset), 86, uint64(n), 8, offset)
			if len(head)%8 != 0 {
				t.Errorf("%d bytes after %d start at %d", n, offset, len(head))
			}
		}
	}
	type padded struct {
		Pad []byte
		X   []float64
		Y   []float32
	}
	p := mustPlan(t, reflect.TypeFor[padded]())
	for pad := range 40 {
		sent := padded{make([]byte, pad), make([]float64, 512), make([]float32, 20000)}
		before := make([]byte, 3, 200_000) // alignment counts from the start of the payload
		out, err := p.Append(before, &sent)
		if err != nil {
			t.Fatal(err)
		}
		var got padded
		src := append([]byte(nil), out[3:]...)
		if err := p.Decode(src, &got, true); err != nil {
			t.Fatal(err)
		}
		if !inside(got.X, src) || !inside(got.Y, src) {
			t.Errorf("pad %d: not aliased", pad)
		}
	}
}

func TestBigEndianHostsWriteTheSameBytes(t *testing.T) {
	type tensors struct {
		A []float32
		B [2]float64
		C []int16
		D []byte
		E []uint
	}
	sent := tensors{[]float32{1, 2}, [2]float64{3, 4}, []int16{5, -6}, []byte{7}, []uint{8}}
	native := New(Limits{})
	foreign := New(Limits{})
	foreign.swap = !native.swap // as if this host had the other order
	p, _ := native.Plan(reflect.TypeFor[tensors]())
	q, _ := foreign.Plan(reflect.TypeFor[tensors]())
	b := mustAppend(t, q, &sent)
	if want := mustAppend(t, p, &sent); len(b) != len(want) || string(b) == string(want) {
		t.Fatalf("the bytes were not swapped: % x", b)
	}
	var got tensors
	if err := q.Decode(b, &got, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestOwnBytesOfEverySize(t *testing.T) {
	for _, n := range []int{0, 23, 24, 255, 256, blockBytes - 1, blockBytes, 65535, 65536} {
		roundTrip(t, &blob{make([]byte, n)})
		roundTrip(t, &[]blob{{make([]byte, n)}, {[]byte{1}}})
	}
	p := mustPlan(t, reflect.TypeFor[blob]())
	if b := mustAppend(t, p, &blob{make([]byte, blockBytes)}); len(b) != ownHead+blockBytes {
		t.Errorf("the own bytes of a whole payload do not start at byte %d", ownHead)
	}
}

// blob writes its own bytes.
type blob struct{ B []byte }

func (b blob) AppendBinary(dst []byte) ([]byte, error) { return append(dst, b.B...), nil }
func (b blob) MarshalBinary() ([]byte, error)          { return b.AppendBinary(nil) }
func (b *blob) UnmarshalBinary(src []byte) error {
	b.B = append([]byte{}, src...)
	return nil
}
