package payload

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"time"
)

// generator fills values with random content; the same seed gives the same.
type generator struct {
	*rand.Rand
	leaves int // that may still be made, which bounds recursive types
}

func newGenerator(seed uint64) *generator {
	return &generator{rand.New(rand.NewPCG(seed, 17)), 400}
}

func (g *generator) fill(v reflect.Value) {
	g.leaves--
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		zone := time.FixedZone("", 60*(g.IntN(1400)-700))
		*p = time.Unix(g.Int64N(1<<36)-1<<35, g.Int64N(1e9)).In(zone)
		return
	case *netip.Addr:
		*p = netip.AddrFrom4([4]byte{1, 2, 3, byte(g.Uint32())})
		return
	case *rand.PCG:
		*p = *rand.NewPCG(g.Uint64(), g.Uint64())
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		g.fillFields(v)
	case reflect.Slice:
		if n := g.length(); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		g.elements(v)
	case reflect.Array:
		g.elements(v)
	case reflect.Map:
		g.fillMap(v)
	case reflect.Pointer:
		if g.leaves > 0 && g.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem())
		}
	case reflect.Interface:
		g.fillAny(v)
	default:
		g.fillScalar(v)
	}
}

func (g *generator) fillFields(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Tag.Get("payload") == "-":
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			g.fillFields(v.Field(i))
		case f.IsExported():
			g.fill(v.Field(i))
		}
	}
}

// length is that of a slice or map; -1 stands for nil.
func (g *generator) length() int {
	switch {
	case g.leaves <= 0 || g.IntN(8) == 0:
		return -1
	case g.IntN(40) == 0:
		return 1000 + g.IntN(2000)
	}
	return g.IntN(5)
}

func (g *generator) elements(v reflect.Value) {
	for i := range v.Len() {
		g.fill(v.Index(i))
	}
}

func (g *generator) fillMap(v reflect.Value) {
	n := g.length()
	if n < 0 {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	for range n % 8 {
		value.SetZero()
		g.fill(key)
		g.fill(value)
		v.SetMapIndex(key, value)
	}
}

func (g *generator) fillAny(v reflect.Value) {
	kinds := []any{true, int64(0), 0.0, float32(0), "", []byte{}, []float32{}, []float64{}, []int64{}, []uint16{}, time.Time{}, []any{},
		map[string]any{}}
	if k := g.IntN(len(kinds) + 1); k < len(kinds) {
		inner := reflect.New(reflect.TypeOf(kinds[k])).Elem()
		inner.Set(reflect.ValueOf(kinds[k]))
		g.fill(inner)
		if inner.Kind() == reflect.Slice && inner.IsNil() || inner.Kind() == reflect.Map && inner.IsNil() {
			return // would arrive as a nil any
		}
		if inner.Kind() == reflect.Map && inner.Len() == 0 {
			return
		}
		v.Set(inner)
	}
}

func (g *generator) fillScalar(v reflect.Value) {
	n := g.Uint64() >> g.IntN(64)
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(n&1 == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n) ^ -int64(g.IntN(2)))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(n)
	case reflect.Float32:
		*v.Addr().Convert(reflect.TypeFor[*float32]()).Interface().(*float32) = math.Float32frombits(uint32(n))
	case reflect.Float64:
		v.SetFloat(math.Float64frombits(n))
	case reflect.String:
		letters := []rune("aé世\x00")
		text := make([]rune, g.IntN(30))
		for i := range text {
			text[i] = letters[g.IntN(len(letters))]
		}
		v.SetString(string(text))
	}
}

// same reports deep equality, with floats compared by their bits.
func same(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Float32, reflect.Float64:
		return math.Float64bits(a.Float()) == math.Float64bits(b.Float())
	case reflect.Struct:
		return sameFields(a, b)
	case reflect.Pointer, reflect.Interface:
		return same(a.Elem(), b.Elem())
	case reflect.Slice, reflect.Array:
		return sameElements(a, b)
	case reflect.Map:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		for it := a.MapRange(); it.Next(); {
			if other := b.MapIndex(it.Key()); !other.IsValid() || !same(it.Value(), other) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

func sameFields(a, b reflect.Value) bool {
	switch a.Type() {
	case reflect.TypeFor[time.Time]():
		return a.Interface().(time.Time).Equal(b.Interface().(time.Time))
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[rand.PCG]():
		return a.Equal(b)
	}
	for i := range a.NumField() {
		if !same(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

func sameElements(a, b reflect.Value) bool {
	if a.Len() != b.Len() || a.Kind() == reflect.Slice && a.IsNil() != b.IsNil() {
		return false
	}
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}
