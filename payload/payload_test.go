package payload

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type small struct {
	ID   uint64
	Step int64
	X    [4]float32
	Done bool
	Name string
}

type layer struct {
	Name  string
	Shape []int
	Data  []float32
}

type weights struct {
	Layers  []layer
	Version uint64
}

type base struct {
	A int8
	b int // does not travel
}

type wide struct {
	base
	*Extra
	Bool     bool
	Ints     []int
	Uints    []uint
	I8       []int8
	I16      [3]int16
	I32      []int32
	U16      []uint16
	U32      []uint32
	U64      []uint64
	F64      []float64
	F32      float32
	Double   float64
	Bytes    []byte
	ID       [16]byte
	Bools    []bool
	Strings  []string
	Rows     [][]float32
	Grid     [2][3]float64
	Named    map[string]small
	Counted  map[int]string
	Unsigned map[uint16][]float32
	Ptr      *small
	PtrPtr   **int
	PtrSlice *[]float32
	Time     time.Time
	Took     time.Duration
	Tooks    []time.Duration
	Addr     netip.Addr
	Addrs    []netip.Addr
	Rand     rand.PCG
	Any      any
	Anys     []any
	Info     map[string]any
	Skipped  chan int `payload:"-"`
}

// Extra is embedded by pointer.
type Extra struct{ Level uint8 }

type node struct {
	Value int
	Next  *node
	Kids  []node
	ByKey map[string]*node
}

func exampleWide() wide {
	zone := time.FixedZone("", 3600)
	return wide{
		base: base{A: -3}, Extra: &Extra{7}, Bool: true,
		Ints: []int{math.MinInt32, -1, 0, math.MaxInt32}, Uints: []uint{}, I8: []int8{-128, 127}, I16: [3]int16{-1, 2, 3},
		I32: []int32{math.MinInt32}, U16: []uint16{1, 65535}, U32: []uint32{1 << 31}, U64: []uint64{math.MaxUint64},
		F64: []float64{math.Inf(-1), math.Copysign(0, -1), math.Pi, math.Float64frombits(0x7ff0000000000123)},
		F32: math.Float32frombits(0x7f800123), Double: math.Float64frombits(0xfff0000000000456),
		Bytes: []byte{}, ID: [16]byte{1, 2}, Bools: []bool{true, false}, Strings: []string{"", "é", strings.Repeat("x", 300)},
		Rows: [][]float32{nil, {}, {1, 2}}, Grid: [2][3]float64{{1, 2, 3}, {4, 5, 6}},
		Named: map[string]small{"a": {Name: "n", X: [4]float32{1}}, "": {}}, Counted: map[int]string{-1: "m", 0: "z", 1000: "k"},
		Unsigned: map[uint16][]float32{1: {1}, 300: nil},
		Ptr:      &small{ID: 1 << 63}, PtrPtr: new(new(5)), PtrSlice: new([]float32(nil)),
		Time: time.Date(2024, 2, 29, 1, 2, 3, 456, zone), Took: -time.Second, Tooks: []time.Duration{1},
		Addr: netip.MustParseAddr("10.0.0.1"), Addrs: []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0")},
		Rand: *rand.NewPCG(1, 2),
		Any:  uint64(math.MaxUint64),
		Anys: []any{nil, true, int64(-5), float32(1.5), 2.5, "s", []byte{1}, []float32{1, 2}, []int64{}, []any{}, map[string]any{},
			time.Unix(5, 0).UTC()},
		Info: map[string]any{"loss": 0.5, "nested": map[int64]any{-1: []uint16{7}, 2: []any{"x"}}},
	}
}

// sameBits compares floats by their bits and looks into unexported fields.
var sameBits = cmp.Options{
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b rand.PCG) bool { return a == b }),
	cmp.AllowUnexported(wide{}, base{}),
}

func mustPlan(t testing.TB, typ reflect.Type) *Plan {
	t.Helper()
	p, err := New(Limits{}).Plan(typ)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustAppend(t testing.TB, p *Plan, v any) []byte {
	t.Helper()
	b, err := p.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// roundTrip encodes *v and decodes it over other values, owned and not.
func roundTrip(t *testing.T, v any) {
	t.Helper()
	typ := reflect.TypeOf(v).Elem()
	p := mustPlan(t, typ)
	b := mustAppend(t, p, v)
	for _, owned := range []bool{false, true} {
		got := reflect.New(typ)
		if err := p.Decode(b, got.Interface(), owned); err != nil {
			t.Fatalf("owned %v: %v", owned, err)
		}
		if !same(reflect.ValueOf(v).Elem(), got.Elem()) {
			t.Fatalf("owned %v: sent\n%#v\nreceived\n%#v", owned, v, got.Interface())
		}
		if again := mustAppend(t, p, got.Interface()); !bytes.Equal(again, b) {
			t.Fatalf("the bytes of what was decoded differ: % x, then % x", b, again)
		}
	}
}

func TestEveryKindSurvivesARoundTrip(t *testing.T) {
	roundTrip(t, new(exampleWide()))
	roundTrip(t, &wide{})
	roundTrip(t, &node{1, &node{Value: 2}, []node{{Value: 3}}, map[string]*node{"x": nil, "y": {}}})
	roundTrip(t, new(struct{}{}))
	roundTrip(t, new("text"))
	roundTrip(t, new(any(nil)))
	roundTrip(t, new(netip.MustParseAddr("::1")))
	roundTrip(t, new(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)))
	for _, v := range []int64{0, 23, 24, 255, 256, 65535, 65536, 1 << 32, math.MaxInt64, -1, -24, -25, math.MinInt64} {
		roundTrip(t, &v)
	}
	for _, n := range []int{0, 1, 3, 1023, 1024, 1025, 16383, 16384, 70000} {
		roundTrip(t, new(make([]float32, n)))
		roundTrip(t, new(make([]byte, n)))
	}
}

func TestZonesWithSecondsKeepTheirInstant(t *testing.T) {
	sent := time.Date(1850, 1, 1, 0, 0, 0, 0, time.FixedZone("LMT", 1172))
	p := mustPlan(t, reflect.TypeFor[time.Time]())
	var got time.Time
	if err := p.Decode(mustAppend(t, p, &sent), &got, false); err != nil || !got.Equal(sent) {
		t.Fatalf("sent %v, received %v, %v", sent, got, err)
	}
}

func TestDecodeOverwritesWholly(t *testing.T) {
	p := mustPlan(t, reflect.TypeFor[wide]())
	b := mustAppend(t, p, &wide{})
	got, kept := exampleWide(), []int{1, 2, 3, 4}
	got.Skipped, got.b, got.Ints = make(chan int), 5, kept
	if err := p.Decode(b, &got, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wide{}, got, sameBits); diff != "" {
		t.Fatalf("old data remains:\n%s", diff)
	}
	if kept[0] != 1 {
		t.Fatal("the memory of the old value was written")
	}
}

func TestSchemaAndFingerprintFollowTheShape(t *testing.T) {
	type obs struct {
		Obs    []float32
		Reward float64
	}
	type renamed struct {
		Obs    []float32
		Return float64
	}
	type flat struct {
		A     int8
		Level uint8
	}
	type embeds struct {
		base
		Extra
	}
	for _, c := range []struct {
		typ  reflect.Type
		want string
	}{
		{reflect.TypeFor[obs](), "struct{Obs:[]float32 Reward:float64}"},
		{reflect.TypeFor[renamed](), "struct{Obs:[]float32 Return:float64}"},
		{reflect.TypeFor[flat](), "struct{A:int8 Level:uint8}"},
		{reflect.TypeFor[embeds](), "struct{A:int8 Level:uint8}"},
		{reflect.TypeFor[[]int](), "[]int64"},
		{reflect.TypeFor[[]int64](), "[]int64"},
		{reflect.TypeFor[[3]uint](), "[3]uint64"},
		{reflect.TypeFor[map[string]any](), "map[string]any"},
		{reflect.TypeFor[[]time.Duration](), "[]duration"},
		{reflect.TypeFor[**[2]string](), "**[2]string"},
		{reflect.TypeFor[time.Time](), "time"},
		{reflect.TypeFor[netip.Addr](), "binary(net/netip.Addr)"},
		{reflect.TypeFor[node](), "struct{Value:int64 Next:*^2 Kids:[]^2 ByKey:map[string]*^3}"},
	} {
		p := mustPlan(t, c.typ)
		if p.Schema() != c.want {
			t.Errorf("%v: schema %s, want %s", c.typ, p.Schema(), c.want)
		}
	}
	a, b := mustPlan(t, reflect.TypeFor[flat]()), mustPlan(t, reflect.TypeFor[embeds]())
	if a.Fingerprint() != b.Fingerprint() {
		t.Error("equal shapes have different fingerprints")
	}
	c, d := mustPlan(t, reflect.TypeFor[obs]()), mustPlan(t, reflect.TypeFor[renamed]())
	if c.Fingerprint() == d.Fingerprint() {
		t.Error("different shapes have equal fingerprints")
	}
	if got := c.Fingerprint(); got != 0xacb35482d0362b1d {
		t.Errorf("the fingerprint of %s changed to %#x", c.Schema(), got)
	}
}

func TestCodecKeepsOnePlanPerType(t *testing.T) {
	c := New(Limits{})
	a, _ := c.Plan(reflect.TypeFor[wide]())
	b, _ := c.Plan(reflect.TypeFor[wide]())
	if a == nil || a != b {
		t.Fatal("the plan was made twice")
	}
}

type oneSided struct{ X int }

func (oneSided) MarshalBinary() ([]byte, error) { return nil, nil }

type otherSide struct{ X int }

func (*otherSide) UnmarshalBinary([]byte) error { return nil }

func TestErrorNamesTheTypeThatCannotTravel(t *testing.T) {
	type inner struct{ Ch chan int }
	type mixed struct {
		netip.Addr
		Port uint16
	}
	type pointing struct {
		*netip.Addr
		Port uint16
	}
	type tagged struct {
		X int `payload:"x"`
	}
	for _, c := range []struct {
		typ        reflect.Type
		path, what string
	}{
		{reflect.TypeFor[struct{ Obs inner }](), "Obs.Ch", "a channel cannot travel"},
		{reflect.TypeFor[struct{ Layers []struct{ Hook func() } }](), "Layers[].Hook", "a function cannot travel"},
		{reflect.TypeFor[map[string]*complex128](), "[]", "a complex number cannot travel"},
		{reflect.TypeFor[struct{ Err error }](), "Err", "an interface with methods (error) cannot travel"},
		{reflect.TypeFor[uintptr](), "", "a uintptr cannot travel"},
		{reflect.TypeFor[map[float64]int](), "", "a map with keys of type float64"},
		{reflect.TypeFor[map[any]int](), "", "a map with keys of type interface {}"},
		{reflect.TypeFor[map[bool]int](), "", "a map with keys of type bool"},
		{reflect.TypeFor[map[netip.Addr]int](), "", "which writes its own bytes"},
		{reflect.TypeFor[struct{ N big.Int }](), "N", "has fields but none that can travel"},
		{reflect.TypeFor[oneSided](), "", "has no UnmarshalBinary"},
		{reflect.TypeFor[otherSide](), "", "no AppendBinary or MarshalBinary"},
		{reflect.TypeFor[mixed](), "", "name that field"},
		{reflect.TypeFor[pointing](), "", "name that field"},
		{reflect.TypeFor[tagged](), "X", "is not known"},
		{nil, "", "nil is not a type"},
	} {
		_, err := New(Limits{}).Plan(c.typ)
		var e *EncodeError
		if !errors.As(err, &e) {
			t.Errorf("%v: %v, want an EncodeError", c.typ, err)
			continue
		}
		if e.Path != c.path || !strings.Contains(e.What, c.what) {
			t.Errorf("%v: path %q, what %q; want %q, %q", c.typ, e.Path, e.What, c.path, c.what)
		}
	}
}

type eight[T any] struct{ A, B, C, D, E, F, G, H []T }

func TestTypesThatExplodeAreRefused(t *testing.T) {
	typ := reflect.TypeFor[eight[eight[eight[eight[eight[eight[eight[string]]]]]]]]()
	before := allocated()
	if _, err := New(Limits{}).Plan(typ); err == nil {
		t.Fatal("a schema of 8^7 words was accepted")
	}
	if took := allocated() - before; took > 16<<20 {
		t.Errorf("%d bytes were taken to refuse it", took)
	}
}

type failing struct{ X int }

var errFailing = errors.New("no bytes today")

func (failing) MarshalBinary() ([]byte, error) { return nil, errFailing }
func (*failing) UnmarshalBinary([]byte) error  { return errFailing }

func TestValuesThatCannotTravelAreNamed(t *testing.T) {
	loop := &node{}
	loop.Next = loop
	limits := Limits{MaxBytes: 100, MaxElements: 3, MaxDepth: 10}
	for _, c := range []struct {
		v          any
		path, what string
	}{
		{loop, "Next.Next.Next.Next.Next", "MaxDepth"},
		{&[]string{"a", "\xff"}, "[1]", "not UTF-8"},
		{&map[string]string{"k": "\xff"}, `["k"]`, "not UTF-8"},
		{&map[string]int{"\xff": 1}, "", "not UTF-8"},
		{&[]string{"", "", "", ""}, "", "4 elements; the limit is 3"},
		{&map[int]int{1: 1, 2: 2, 3: 3, 4: 4}, "", "4 entries; the limit is 3"},
		{new(strings.Repeat("x", 100)), "", "102 bytes; the limit is 100"},
		{new(make([]float32, 26)), "", "a tensor of 26 x float32"},
		{&struct{ T time.Time }{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "T", "RFC 3339"},
		{&struct{ F []failing }{[]failing{{}}}, "F[0]", "its own encoding failed"},
		{&struct{ A any }{small{}}, "A", "would arrive as another type"},
		{&struct{ A any }{new(1)}, "A", "would arrive as another type"},
		{&struct{ A any }{map[uint64]int{}}, "A", "would arrive as another type"},
		{&struct{ A any }{make(chan int)}, "A", "what is in the interface cannot travel"},
	} {
		p, err := New(limits).Plan(reflect.TypeOf(c.v).Elem())
		if err != nil {
			t.Fatal(err)
		}
		dst, err := p.Append([]byte("before"), c.v)
		var e *EncodeError
		if !errors.As(err, &e) {
			t.Errorf("%T: %v, want an EncodeError", c.v, err)
			continue
		}
		if !strings.HasPrefix(e.Path, c.path) || !strings.Contains(e.What, c.what) {
			t.Errorf("%T: path %q, what %q; want %q, %q", c.v, e.Path, e.What, c.path, c.what)
		}
		if string(dst) != "before" {
			t.Errorf("%T: dst is %q after an error", c.v, dst)
		}
	}
}

// An error names the type, the path, the place, the fault and its cause.
func TestErrorsHaveTheirCause(t *testing.T) {
	type holds struct{ F []failing }
	for _, c := range []struct {
		v                any
		src, sent, taken string
	}{
		{&failing{}, "40", "payload: encode payload.failing: its own encoding failed: no bytes today",
			"payload: decode payload.failing: at byte 0: its own decoding failed: no bytes today"},
		{&holds{[]failing{{}}}, "81 81 40", "payload: encode payload.holds: F[0]: its own encoding failed: no bytes today",
			"payload: decode payload.holds: F[0]: at byte 2: its own decoding failed: no bytes today"},
	} {
		p := mustPlan(t, reflect.TypeOf(c.v).Elem())
		if _, err := p.Append(nil, c.v); !errors.Is(err, errFailing) || err.Error() != c.sent {
			t.Errorf("%v, want %s", err, c.sent)
		}
		if err := p.Decode(unhex(t, c.src), c.v, false); !errors.Is(err, errFailing) || err.Error() != c.taken {
			t.Errorf("%v, want %s", err, c.taken)
		}
	}
}

// panics is a type whose own decoding expects a byte that need not be there.
type panics struct{ b byte }

func (p *panics) MarshalBinary() ([]byte, error) { return []byte{p.b}, nil }

func (p *panics) UnmarshalBinary(b []byte) error { p.b = b[0]; return nil }

// A panic of a type's own decoding is an error, as the bytes come from another node.
func TestPanicOfOwnDecodingIsAnError(t *testing.T) {
	p := mustPlan(t, reflect.TypeFor[panics]())
	var v panics
	if err := p.Decode(unhex(t, "41 07"), &v, false); err != nil || v.b != 7 {
		t.Error(v, err)
	}
	err := p.Decode(unhex(t, "40"), &v, false)
	if _, ok := errors.AsType[*DecodeError](err); !ok ||
		!strings.Contains(err.Error(), "its own decoding failed: panic: runtime error: index out of range") {
		t.Error(err)
	}
}

func TestWrongPointersAreErrors(t *testing.T) {
	p := mustPlan(t, reflect.TypeFor[int]())
	for _, v := range []any{nil, 5, new("x"), (*int)(nil)} {
		if _, err := p.Append(nil, v); err == nil {
			t.Errorf("Append of %T is no error", v)
		}
		if err := p.Decode([]byte{1}, v, false); err == nil {
			t.Errorf("Decode into %T is no error", v)
		}
	}
}
