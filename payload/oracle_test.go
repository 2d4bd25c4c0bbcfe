package payload

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// oracleDecoding is the other implementation's, with its limits out of the way.
func oracleDecoding(t testing.TB) cbor.DecMode {
	t.Helper()
	mode, err := cbor.DecOptions{
		MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32, MaxNestedLevels: 65535,
		DupMapKey: cbor.DupMapKeyEnforcedAPF,
	}.DecMode()
	if err != nil {
		t.Fatal(err)
	}
	return mode
}

var typedTags = map[reflect.Kind]uint64{
	reflect.Int8: 72, reflect.Int16: 77, reflect.Int32: 78, reflect.Int64: 79, reflect.Int: 79,
	reflect.Uint16: 69, reflect.Uint32: 70, reflect.Uint64: 71, reflect.Uint: 71,
	reflect.Float32: 85, reflect.Float64: 86,
}

// generic is what a decoder that knows nothing of Go types is to read.
func generic(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Time:
		return x
	case encoding.BinaryMarshaler:
		b, _ := x.MarshalBinary()
		return append([]byte{}, b...)
	}
	if v.CanAddr() {
		if x, ok := reflect.TypeAssert[encoding.BinaryMarshaler](v.Addr()); ok {
			b, _ := x.MarshalBinary()
			return b
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		return genericFields(v)
	case reflect.Slice, reflect.Array:
		return genericList(v)
	case reflect.Map:
		if v.IsNil() {
			return nil
		}
		m := map[any]any{}
		for it := v.MapRange(); it.Next(); {
			m[generic(it.Key())] = generic(it.Value())
		}
		return m
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		switch v.Elem().Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			return []any{generic(v.Elem())}
		}
		return generic(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return generic(v.Elem())
	}
	return genericScalar(v)
}

func genericScalar(v reflect.Value) any {
	switch {
	case v.CanInt() && v.Int() >= 0:
		return uint64(v.Int())
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return v.Uint()
	case v.CanFloat():
		return v.Float()
	}
	return v.Interface()
}

func genericFields(v reflect.Value) []any {
	list := []any{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Tag.Get("payload") == "-":
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			list = append(list, genericFields(v.Field(i))...)
		case f.IsExported():
			list = append(list, generic(v.Field(i)))
		}
	}
	return list
}

func genericList(v reflect.Value) any {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return nil
	}
	kind := v.Type().Elem().Kind()
	if kind == reflect.Uint8 {
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		return b
	}
	if tag, ok := typedTags[kind]; ok {
		var b bytes.Buffer
		for i := range v.Len() {
			x := v.Index(i)
			switch kind {
			case reflect.Int:
				_ = binary.Write(&b, binary.LittleEndian, x.Int())
			case reflect.Uint:
				_ = binary.Write(&b, binary.LittleEndian, x.Uint())
			default:
				_ = binary.Write(&b, binary.LittleEndian, x.Interface())
			}
		}
		return cbor.Tag{Number: tag, Content: append([]byte{}, b.Bytes()...)}
	}
	list := make([]any, v.Len())
	for i := range list {
		list[i] = generic(v.Index(i))
	}
	return list
}

// checkOracle holds that the other implementation reads what we write.
func checkOracle(t *testing.T, v any) {
	t.Helper()
	b := mustAppend(t, mustPlan(t, reflect.TypeOf(v).Elem()), v)
	if err := cbor.Wellformed(b); err != nil && len(b) < 1000 {
		t.Fatal(err)
	}
	var got any
	if err := oracleDecoding(t).Unmarshal(b, &got); err != nil {
		t.Fatalf("%v in % x", err, b)
	}
	want := generic(reflect.ValueOf(v).Elem())
	if !same(reflect.ValueOf(&want).Elem(), reflect.ValueOf(&got).Elem()) {
		t.Fatalf("written\n%#v\nread by the oracle\n%#v", want, got)
	}
}

// mirrored is a type that the other implementation writes in the same shape.
type mirrored struct {
	_       struct{} `cbor:",toarray"`
	Bool    bool
	Ints    []int
	I8      int8
	I16     [3]int16
	U32     uint32
	U64     []uint64
	F32     float32
	F32s    []float32
	F64s    [2]float64
	Bytes   []byte
	Digest  [4]byte
	Text    string
	Texts   []string
	Rows    [][]float64
	ByName  map[string]float32
	ByCount map[int16][]string
	Ptr     *inner
	Inner   inner
	List    []inner
	Time    time.Time
	Took    time.Duration
	Any     any
}

type inner struct {
	_    struct{} `cbor:",toarray"`
	X    float64
	Y    *uint8
	Deep *inner
}

// checkMirror holds that we read what the other implementation writes.
func checkMirror(t *testing.T, v *mirrored) {
	t.Helper()
	mode, err := cbor.EncOptions{Time: cbor.TimeRFC3339Nano, TimeTag: cbor.EncTagRequired, NaNConvert: cbor.NaNConvertNone}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := mode.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	p := mustPlan(t, reflect.TypeFor[mirrored]())
	var got mirrored
	if err := p.Decode(theirs, &got, false); err != nil {
		t.Fatalf("%v in % x", err, theirs)
	}
	if !bytes.Equal(mustAppend(t, p, v), mustAppend(t, p, &got)) {
		t.Fatalf("sent %+v\nreceived %+v", *v, got)
	}
}

func TestAnotherImplementationReadsWhatWeWrite(t *testing.T) {
	checkOracle(t, new(exampleWide()))
	checkOracle(t, &wide{})
	checkOracle(t, &node{1, &node{Value: 2}, []node{{Value: 3}}, map[string]*node{"x": nil, "y": {}}})
	for seed := range uint64(50) {
		v := new(wide)
		newGenerator(seed).fill(reflect.ValueOf(v).Elem())
		checkOracle(t, v)
	}
	p := mustPlan(t, reflect.TypeFor[weights]())
	large := weights{Layers: []layer{{Data: make([]float32, 20_000)}, {Name: "x", Data: make([]float32, 2000)}}}
	if err := cbor.Wellformed(mustAppend(t, p, &large)); err != nil {
		t.Fatal(err)
	}
	checkOracle(t, &large)
}

func TestWeReadWhatAnotherImplementationWrites(t *testing.T) {
	checkMirror(t, &mirrored{})
	for seed := range uint64(50) {
		v := new(mirrored)
		g := newGenerator(seed)
		g.fill(reflect.ValueOf(v).Elem())
		v.Any = []any{g.Int64(), "x", map[string]any{"k": nil}, 0.5}
		checkMirror(t, v)
	}
}
