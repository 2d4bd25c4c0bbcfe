package payload

import (
	"bytes"
	"encoding/gob"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

func exampleSmall() small {
	return small{ID: 1 << 40, Step: -7, X: [4]float32{1, 2, 3, 4}, Done: true, Name: "cartpole-7"}
}

// million is one million numbers, in one tensor or in ten layers.
func million() []float32 {
	x := make([]float32, 1_000_000)
	for i := range x {
		x[i] = float32(i) * 0.5
	}
	return x
}

func layered() weights {
	w := weights{Version: 7}
	x := million()
	for i := range 10 {
		w.Layers = append(w.Layers, layer{"layer", []int{1000, 100}, x[i*100_000 : (i+1)*100_000]})
	}
	return w
}

func TestAppendDoesNotAllocate(t *testing.T) {
	s, w, l := exampleSmall(), million()[:10_000], weights{Layers: []layer{{"l", []int{2, 2}, []float32{1, 2, 3, 4}}}}
	own := blob{make([]byte, 5000)}
	for _, v := range []any{&s, &w, &l, &own} {
		p := mustPlan(t, reflect.TypeOf(v).Elem())
		buf := mustAppend(t, p, v)
		if n := testing.AllocsPerRun(100, func() { buf, _ = p.Append(buf[:0], v) }); n != 0 {
			t.Errorf("%T: %v allocations", v, n)
		}
	}
}

func TestDecodeAllocatesOnlyWhatItReturns(t *testing.T) {
	s, x := exampleSmall(), million()[:10_000]
	for _, c := range []struct {
		v     any
		owned bool
		want  float64
	}{
		{&s, false, 1},                         // the name
		{&small{X: s.X}, false, 0},             // no name
		{&x, true, 0},                          // aliased
		{&x, false, 1},                         // copied
		{&weights{Version: 1}, false, 0},       // nothing in it
		{&[]layer{{Data: x}, {}}, true, 1},     // the slice of layers
		{&struct{ A, B int }{1, 2}, false, 0},  // numbers only
		{&struct{ P *int }{new(int)}, true, 1}, // what the pointer points to
	} {
		p := mustPlan(t, reflect.TypeOf(c.v).Elem())
		src := mustAppend(t, p, c.v)
		dst := reflect.New(reflect.TypeOf(c.v).Elem()).Interface()
		if n := testing.AllocsPerRun(100, func() { _ = p.Decode(src, dst, c.owned) }); n != c.want {
			t.Errorf("%T, owned %v: %v allocations, want %v", c.v, c.owned, n, c.want)
		}
	}
}

func BenchmarkSmall(b *testing.B) {
	v := exampleSmall()
	p := mustPlan(b, reflect.TypeFor[small]())
	src := mustAppend(b, p, &v)
	b.Run("append", func(b *testing.B) {
		buf := make([]byte, 0, 256)
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = p.Append(buf[:0], &v)
		}
	})
	b.Run("decode", func(b *testing.B) {
		var got small
		b.ReportAllocs()
		for b.Loop() {
			if err := p.Decode(src, &got, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("baseline/fxamacker/append", func(b *testing.B) {
		var buf bytes.Buffer
		b.ReportAllocs()
		for b.Loop() {
			buf.Reset()
			_ = cbor.MarshalToBuffer(&v, &buf)
		}
	})
	b.Run("baseline/fxamacker/decode", func(b *testing.B) {
		enc, _ := cbor.Marshal(&v)
		var got small
		b.ReportAllocs()
		for b.Loop() {
			_ = cbor.Unmarshal(enc, &got)
		}
	})
	benchGob(b, &v, new(small))
}

// benchGob runs gob with one long-lived encoder, then one decoder a value, as
// it needs its type description once on each side.
func benchGob(b *testing.B, v, got any) {
	b.Run("baseline/gob/append", func(b *testing.B) {
		var buf bytes.Buffer
		enc := gob.NewEncoder(&buf)
		b.ReportAllocs()
		for b.Loop() {
			buf.Reset()
			_ = enc.Encode(v)
		}
		b.SetBytes(int64(buf.Len()))
	})
	b.Run("baseline/gob/decode", func(b *testing.B) {
		var buf bytes.Buffer
		_ = gob.NewEncoder(&buf).Encode(v)
		b.SetBytes(int64(buf.Len()))
		b.ReportAllocs()
		for b.Loop() {
			_ = gob.NewDecoder(bytes.NewReader(buf.Bytes())).Decode(got)
		}
	})
}

func BenchmarkWeights(b *testing.B) {
	bare, structured := million(), layered()
	b.Run("bare", func(b *testing.B) { benchTensors(b, &bare, new([]float32)) })
	b.Run("struct", func(b *testing.B) { benchTensors(b, &structured, new(weights)) })
}

func benchTensors(b *testing.B, v, got any) {
	p := mustPlan(b, reflect.TypeOf(v).Elem())
	src := mustAppend(b, p, v)
	b.Run("baseline/memcpy", func(b *testing.B) {
		dst := make([]byte, len(src))
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			copy(dst, src)
		}
	})
	b.Run("baseline/memcpy-fresh", func(b *testing.B) {
		var dst []byte
		b.SetBytes(int64(len(src)))
		b.ReportAllocs()
		for b.Loop() {
			dst = append([]byte(nil), src...)
		}
		_ = dst
	})
	b.Run("append", func(b *testing.B) {
		buf := append([]byte(nil), src...)
		b.SetBytes(int64(len(src)))
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = p.Append(buf[:0], v)
		}
	})
	for name, owned := range map[string]bool{"decode/owned": true, "decode/copy": false} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Decode(src, got, owned); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("baseline/fxamacker/append", func(b *testing.B) {
		var buf bytes.Buffer
		b.ReportAllocs()
		for b.Loop() {
			buf.Reset()
			_ = cbor.MarshalToBuffer(v, &buf)
		}
		b.SetBytes(int64(buf.Len()))
	})
	b.Run("baseline/fxamacker/decode", func(b *testing.B) {
		enc, _ := cbor.Marshal(v)
		mode, _ := cbor.DecOptions{MaxArrayElements: 1 << 24}.DecMode()
		b.SetBytes(int64(len(enc)))
		b.ReportAllocs()
		for b.Loop() {
			_ = mode.Unmarshal(enc, got)
		}
	})
	benchGob(b, v, got)
}

// BenchmarkMany is values of many parts, each of which is counted.
func BenchmarkMany(b *testing.B) {
	smalls, dynamic, rows := make([]small, 1000), make([]map[string]any, 1000), make([][]float32, 1000)
	for i := range smalls {
		smalls[i] = exampleSmall()
		dynamic[i] = map[string]any{"reward": 1.5, "length": int64(200), "name": "cartpole"}
		rows[i] = []float32{1, 2, 3, 4}
	}
	for name, v := range map[string]any{"structs": &smalls, "maps": &dynamic, "rows": &rows} {
		p := mustPlan(b, reflect.TypeOf(v).Elem())
		src := mustAppend(b, p, v)
		b.Run(name+"/append", func(b *testing.B) {
			buf := append([]byte(nil), src...)
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = p.Append(buf[:0], v)
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Decode(src, got, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
