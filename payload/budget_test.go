package payload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// sparse takes much more memory than bytes: a kilobyte of it does not travel.
type sparse struct {
	Done  bool
	Notes []string
	Cache [1 << 10]byte `payload:"-"`
}

// many is an array of n items of CBOR.
func many(n int, item string) []byte {
	head := binary.BigEndian.AppendUint32([]byte{majorArray<<5 | 26}, uint32(n))
	return append(head, bytes.Repeat([]byte(item), n)...)
}

// nested is an item that holds itself, some levels deep, in a prefix.
func nested(levels int, open, leaf string) string { return strings.Repeat(open, levels) + leaf }

// manyEntries is a map of n entries with growing integer keys.
func manyEntries(n int, value string) []byte {
	out := binary.BigEndian.AppendUint32([]byte{majorMap<<5 | 26}, uint32(n))
	for i := range n {
		out = append(appendHead(out, majorUint, uint64(i)), value...)
	}
	return out
}

// amplifying are payloads of which a byte takes much memory, by the type that they are for.
func amplifying() map[string]struct {
	typ reflect.Type
	src []byte
} {
	type fault = struct {
		typ reflect.Type
		src []byte
	}
	const n = 200_000
	type wideStruct struct{ A, B, C, D []int }
	return map[string]fault{
		"empty slices":                    {reflect.TypeFor[[][]float32](), many(n, "\x80")},
		"nil slices":                      {reflect.TypeFor[[][]float32](), many(n, "\xf6")},
		"empty texts":                     {reflect.TypeFor[[][4]string](), many(n, "\x84\x60\x60\x60\x60")},
		"structs of empty slices":         {reflect.TypeFor[[]wideStruct](), many(n, "\x84\x80\x80\x80\x80")},
		"structs that travel in part":     {reflect.TypeFor[[]sparse](), many(n, "\x82\xf4\xf6")},
		"pointers to such structs":        {reflect.TypeFor[[]*sparse](), many(n, "\x82\xf4\xf6")},
		"pointers to pointers":            {reflect.TypeFor[[]****int](), many(n, "\x81\x81\x81\x00")},
		"empty maps":                      {reflect.TypeFor[[]map[int]int](), many(n, "\xa0")},
		"maps of one entry":               {reflect.TypeFor[[]map[int][16]int64](), many(n, "\xa1\x00\x90"+strings.Repeat("\x00", 16))},
		"maps of large values":            {reflect.TypeFor[map[int]sparse](), manyEntries(n, "\x82\xf4\xf6")},
		"maps of maps":                    {reflect.TypeFor[map[int]map[int]bool](), manyEntries(n, "\xa1\x00\xf4")},
		"any: empty arrays":               {reflect.TypeFor[any](), many(n, "\x80")},
		"any: empty maps":                 {reflect.TypeFor[any](), many(n, "\xa0")},
		"any: maps of one entry":          {reflect.TypeFor[any](), many(n, "\xa1\x00\x00")},
		"any: maps of one text":           {reflect.TypeFor[any](), many(n, "\xa1\x60\x00")},
		"any: empty texts":                {reflect.TypeFor[any](), many(n, "\x60")},
		"any: empty bytes":                {reflect.TypeFor[any](), many(n, "\x40")},
		"any: arrays in each other":       {reflect.TypeFor[any](), many(n/100, nested(100, "\x81", "\x80"))},
		"any: maps in each other":         {reflect.TypeFor[any](), many(n/100, nested(100, "\xa1\x60", "\xa0"))},
		"any: numbers":                    {reflect.TypeFor[any](), many(n, "\x20")},
		"any: half floats":                {reflect.TypeFor[any](), many(n, "\xf9\x3e\x00")},
		"any: times with offsets":         {reflect.TypeFor[any](), many(n/10, "\xc0\x78\x192026-01-02T03:04:05+01:01")},
		"values of a map of any":          {reflect.TypeFor[map[int]any](), manyEntries(n, "\xa0")},
		"arrays of arrays of nil slices":  {reflect.TypeFor[[][4][]string](), many(n, "\x84\xf6\xf6\xf6\xf6")},
		"slices in each other, a list":    {reflect.TypeFor[[]node](), many(n, "\x84\x00\xf6\x80\xa0")},
		"numbers of one byte as numbers8": {reflect.TypeFor[[][]float64](), many(n/8, "\x88"+strings.Repeat("\x00", 8))},
	}
}

// TestMemoryOfAPayloadIsBounded decodes payloads that amplify. Without the budget they take up
// to some hundred times their length.
func TestMemoryOfAPayloadIsBounded(t *testing.T) {
	for name, c := range amplifying() {
		p := mustPlan(t, c.typ)
		v := reflect.New(c.typ)
		before := allocated()
		err := p.Decode(c.src, v.Interface(), false)
		took := allocated() - before
		t.Logf("%s: %d bytes took %d, %.1f for each: %v", name, len(c.src), took, float64(took)/float64(len(c.src)), err != nil)
		if took > mayTake(len(c.src)) {
			t.Errorf("%s: %d bytes took %d bytes of memory", name, len(c.src), took)
		}
		if e := new(DecodeError); err != nil && (!errors.As(err, &e) ||
			!strings.Contains(e.What, "bytes of memory, the limit for a payload of")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSenderAndReceiverHaveOneLimit holds that both count the same: the largest value that
// is sent is decoded, and the next one is refused by both, with a remedy in the error.
func TestSenderAndReceiverHaveOneLimit(t *testing.T) {
	for name, of := range map[string]func(n int) any{
		"nil slices": func(n int) any { return new(make([][]float32, n)) },
		"empty maps": func(n int) any {
			v := make([]map[string]int, n)
			for i := range v {
				v[i] = map[string]int{}
			}
			return &v
		},
		"structs that travel in part": func(n int) any { return new(make([]sparse, n)) },
		"maps of one entry": func(n int) any {
			v := make([]map[string]any, n)
			for i := range v {
				v[i] = map[string]any{"lives": int64(3)}
			}
			return &v
		},
		"any": func(n int) any {
			v := make([]any, n)
			for i := range v {
				v[i] = []any{}
			}
			return new(any(v))
		},
	} {
		low, high := 1, 1<<14 // sent, refused
		if err := sendAndReceive(t, of(low)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for high-low > 1 {
			if n := (low + high) / 2; sendAndReceive(t, of(n)) == nil {
				low = n
			} else {
				high = n
			}
		}
		err := sendAndReceive(t, of(high))
		e := new(EncodeError)
		if !errors.As(err, &e) || !strings.Contains(e.What, "bytes of memory where it is decoded; the limit for its") ||
			!strings.Contains(e.What, "several smaller values") {
			t.Errorf("%s: %d: %v", name, high, err)
		}
		if high < 50 {
			t.Errorf("%s: %d are too many", name, high)
		}
		t.Logf("%s: %d are sent", name, low)
	}
}

// sendAndReceive returns the sender's error. A message that is sent must arrive.
func sendAndReceive(t *testing.T, v any) error {
	t.Helper()
	typ := reflect.TypeOf(v).Elem()
	p := mustPlan(t, typ)
	b, err := p.Append(nil, v)
	if err != nil {
		return err
	}
	if err := p.Decode(b, reflect.New(typ).Interface(), false); err != nil {
		t.Errorf("%v: sent, but: %v", typ, err)
	}
	return nil
}

// honest are values as programs send them, n of each.
func honest(n int) map[string]any {
	type transition struct {
		Obs, Next  []float32
		Action     int
		Reward     float64
		Done, Late bool
		Info       map[string]float64
	}
	type zeros struct{ A, B, C int }
	r := rand.New(rand.NewPCG(1, 2))
	bools, pointers, rows := make([]bool, n), make([]*zeros, n), make([][]float32, n)
	counts, set, table := map[string]int{}, map[int]struct{}{}, map[string]map[string]float64{}
	moves, words, mixed := make([]transition, n), make([]string, n), make([]any, n)
	dynamic, stamps := make([]map[string]any, n), make([]time.Time, n)
	for i := range n {
		name := fmt.Sprintf("agent%d", i)
		pointers[i], rows[i], words[i] = &zeros{}, make([]float32, i%4), name
		counts[name], set[i], mixed[i] = i, struct{}{}, []any{int64(i), 0.5, name, true}[i%4]
		table[name] = map[string]float64{"loss": 1, "reward": 2, "entropy": 3}
		moves[i] = transition{Obs: make([]float32, 4), Next: make([]float32, 4), Action: i % 2, Reward: r.Float64()}
		dynamic[i] = map[string]any{"reward": 1.5, "length": int64(200), "time": 12.25, "name": name}
		stamps[i] = time.Unix(int64(i), 5).In(time.FixedZone("", 3660))
	}
	return map[string]any{
		"[]bool": &bools, "[]*struct": &pointers, "[]*struct, nil": new(make([]*zeros, n)), "[]struct, zero": new(make([]zeros, n)),
		"[][]float32": &rows, "map[string]int": &counts, "map[int]struct{}": &set, "map[string]map[string]float64": &table,
		"[]transition": &moves, "[]string": &words, "[]any": &mixed, "[]map[string]any": &dynamic, "[]time.Time": &stamps,
		"[]string, empty": new(make([]string, n)), "[]any, zero": new(make([]any, n)),
	}
}

// TestHonestValuesAreWithinTheBudget sends what programs send, few and many of each.
func TestHonestValuesAreWithinTheBudget(t *testing.T) {
	for _, n := range []int{0, 1, 9, 1000, 20_000} {
		for name, v := range honest(n) {
			if err := sendAndReceive(t, v); err != nil {
				t.Errorf("%d of %s: %v", n, name, err)
				continue
			}
			if n < 20_000 {
				continue
			}
			p := mustPlan(t, reflect.TypeOf(v).Elem())
			b := mustAppend(t, p, v)
			got := reflect.New(reflect.TypeOf(v).Elem())
			before := allocated()
			if err := p.Decode(b, got.Interface(), false); err != nil {
				t.Fatal(err)
			}
			took := allocated() - before
			runtime.KeepAlive(got)
			t.Logf("%-32s %9d bytes take %5.1f bytes of memory for each", name, len(b), float64(took)/float64(len(b)))
		}
	}
}

// TestPlansThatCannotGrowAreNotCounted is the table of types and the least lengths of their
// payloads that are not counted.
func TestPlansThatCannotGrowAreNotCounted(t *testing.T) {
	const large, always = 4 << 20, 1 << 40
	for _, c := range []struct {
		typ         reflect.Type
		least, most int
	}{
		{reflect.TypeFor[[]float32](), always, math.MaxInt}, {reflect.TypeFor[small](), always, math.MaxInt},
		{reflect.TypeFor[[]bool](), always, math.MaxInt},
		{reflect.TypeFor[string](), always, math.MaxInt}, {reflect.TypeFor[[]struct{ A, B, C int }](), large, always},
		{reflect.TypeFor[[3][]int](), large, always}, {reflect.TypeFor[[]*int](), large, always},
		{reflect.TypeFor[[]string](), 0, large}, {reflect.TypeFor[[][]int](), 0, large}, {reflect.TypeFor[map[int]int](), 0, large},
		{reflect.TypeFor[any](), 0, large}, {reflect.TypeFor[node](), 0, large}, {reflect.TypeFor[[]sparse](), 0, large},
	} {
		if p := mustPlan(t, c.typ); p.uncounted < c.least || p.uncounted > c.most {
			t.Errorf("%v: up to %d bytes are not counted, want %d to %d", c.typ, p.uncounted, c.least, c.most)
		}
	}
}

// A large value takes a few times its bytes.
func TestMemoryOfALargePayloadIsBounded(t *testing.T) {
	const n = 8 << 20
	if got, want := memoryFor(n), memoryFree+memoryAhead+largePerByte*n; got != want {
		t.Errorf("a value of %d bytes may take %d bytes of memory, want %d", n, got, want)
	}
	if got, want := memoryFor(1<<20), memoryFree+memoryPerByte<<20; got != want {
		t.Errorf("a value of 1 MiB may take %d bytes of memory, want %d", got, want)
	}
	p := mustPlan(t, reflect.TypeFor[[]struct{ A, B, C int }]())
	rows := append([]byte{0x9a, n / 4 >> 24, n / 4 >> 16 & 0xff, n / 4 >> 8 & 0xff, n / 4 & 0xff}, bytes.Repeat([]byte{0x83, 0, 0, 0}, n/4)...)
	var got []struct{ A, B, C int }
	if err := p.Decode(rows, &got, false); err != nil || len(got) != n/4 { // 6 times
		t.Errorf("%d rows, %v", len(got), err)
	}
	q := mustPlan(t, reflect.TypeFor[[]*struct{ A, B, C int }]())
	empty := append([]byte{0x9a, 2 * n >> 24, 2 * n >> 16 & 0xff, 2 * n >> 8 & 0xff, 2 * n & 0xff}, bytes.Repeat([]byte{0xf6}, 2*n)...)
	before := allocated()
	var pointers []*struct{ A, B, C int }
	err := q.Decode(empty, &pointers, false) // 8 times: as much as is free
	if took := allocated() - before; took > uint64(memoryFor(len(empty)))+1<<20 {
		t.Errorf("%d bytes of memory for %d, %v", took, len(empty), err)
	}
	if err != nil {
		t.Error(err)
	}
	var texts []string
	none := append([]byte{0x9a, n >> 24, n >> 16 & 0xff, n >> 8 & 0xff, n & 0xff}, bytes.Repeat([]byte{0x60}, n)...)
	err = mustPlan(t, reflect.TypeFor[[]string]()).Decode(none, &texts, false) // 16 times
	if err == nil || !strings.Contains(err.Error(), "bytes of memory") {
		t.Errorf("%d empty texts: %v", len(texts), err)
	}
}

// FuzzMemory decodes any bytes, repeated, as types of which few bytes take much memory.
func FuzzMemory(f *testing.F) {
	for _, c := range amplifying() {
		f.Add(c.src[:min(len(c.src), 64)], uint16(1000))
	}
	f.Fuzz(func(t *testing.T, item []byte, n uint16) {
		if len(item) == 0 || len(item) > 1000 {
			return
		}
		inputs := [][]byte{item, many(int(n), string(item)), manyEntries(int(n), string(item))}
		if len(item) > 5 {
			inputs = append(inputs, many(int(n), string(item[5:])))
		}
		types := decodedTypes()
		for _, c := range amplifying() {
			types = append(types, c.typ)
		}
		for _, typ := range types {
			p := mustPlan(t, typ)
			for _, src := range inputs {
				v := reflect.New(typ)
				before := allocated()
				err := p.Decode(src, v.Interface(), false)
				if took := allocated() - before; took > 1<<20+mayTake(len(src)) {
					t.Fatalf("%v: %d bytes took %d bytes of memory: %v", typ, len(src), took, err)
				}
			}
		}
	})
}

// FuzzHonestIsDecoded sends any values: the receiver accepts each value that the sender accepts.
func FuzzHonestIsDecoded(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint16(seed*100))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint16) {
		g := newGenerator(seed)
		for _, v := range []any{new(wide), new(node), new(weights), new(map[string][]small), new([][2]*string), new(any), new([]any),
			new([]map[string]any), new(map[int]map[string]sparse), new([]*node), new(map[int16]any), new([]time.Time)} {
			e := reflect.ValueOf(v).Elem()
			g.leaves = int(n) // larger values than those of the round trip
			g.fill(e)
			if e.Kind() == reflect.Slice && e.Len() > 0 { // one value, many times
				all := reflect.MakeSlice(e.Type(), int(n), int(n))
				for i := range int(n) {
					all.Index(i).Set(e.Index(i % e.Len()))
				}
				e.Set(all)
			}
			_ = sendAndReceive(t, v)
		}
	})
}
