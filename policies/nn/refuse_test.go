package nn_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/policies/nn"
)

// panics calls f, and fails unless it panics with text.
func panics(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if p := fmt.Sprint(recover()); p != text {
			t.Errorf("panic %q, want %q", p, text)
		}
	}()
	f()
}

func TestLayersThatCannotBeAreRefused(t *testing.T) {
	one := func() nn.Layer { return nn.Dense(1, nn.Zeros) }
	panics(t, "nn: network of 0 columns and 1 layers", func() { nn.New(0, 1, one()) })
	panics(t, "nn: network of -1 columns and 1 layers", func() { nn.New(-1, 1, one()) })
	panics(t, "nn: network of 2 columns and 0 layers", func() { nn.New(2, 1) })
	panics(t, "nn: dense layer of 0 columns", func() { nn.Dense(0, nn.Zeros) })
	panics(t, "nn: dense layer of -1 columns", func() { nn.Dense(-1, nn.Zeros) })
	panics(t, "nn: dense layer of 3 columns", func() { nn.Dense(3, nil) })
	panics(t, "nn: dueling layer of 1 columns", func() { nn.New(2, 1, one(), nn.Dueling()) })
	panics(t, "nn: dueling layer of 3 columns", func() { nn.New(3, 1, nn.DuelingGroups(2)) })
	panics(t, "nn: dueling layer of 2 columns", func() { nn.New(2, 1, nn.DuelingGroups(2)) })
	panics(t, "nn: dueling layer of groups of 0 columns", func() { nn.DuelingGroups(0) })
	if n := nn.New(1, 1, nn.Dense(2, nn.Zeros), nn.Dueling()); n.In() != 1 || n.Out() != 1 || n.Size() != 4 {
		t.Errorf("%d columns in, %d out, %d weights", n.In(), n.Out(), n.Size())
	}
}

// TestOtherLengthsAreRefused by optimisers, before they write anything.
func TestOtherLengthsAreRefused(t *testing.T) {
	for name, o := range map[string]nn.Optimizer{"adam": nn.NewAdam(nn.AdamConfig{}, 2), "sgd": nn.NewSGD(0.1, 0, 2)} {
		t.Run(name, func(t *testing.T) {
			for _, n := range [][2]int{{1, 2}, {3, 2}, {2, 1}, {2, 3}, {1, 1}, {3, 3}} {
				panics(t, fmt.Sprintf("nn: %s of 2 weights got %d and %d gradients", name, n[0], n[1]), func() {
					o.Step(make([]float32, n[0]), make([]float32, n[1]))
				})
			}
			if n := o.State().Version; n != 0 {
				t.Errorf("%d steps are counted", n)
			}
		})
	}
}

func TestOptimizersRefuseAStateOfOthers(t *testing.T) {
	tensor := func(name string, n int) nn.Tensor {
		return nn.Tensor{Name: name, Shape: []int{n}, Data: slices.Repeat([]float32{7}, n)}
	}
	for _, c := range []struct {
		name, text string
		opt        nn.Optimizer
		tensors    []nn.Tensor
	}{
		{"no v", "load adam: tensor m or v is missing", nn.NewAdam(nn.AdamConfig{}, 2), []nn.Tensor{tensor("m", 2)}},
		{"no m", "load adam: tensor m or v is missing", nn.NewAdam(nn.AdamConfig{}, 2), []nn.Tensor{tensor("v", 2)}},
		{"long m", "load adam: tensor m is [3] with 3 values, want [2]", nn.NewAdam(nn.AdamConfig{}, 2),
			[]nn.Tensor{tensor("m", 3), tensor("v", 2)}},
		{"short v", "load adam: tensor v is [1] with 1 values, want [2]", nn.NewAdam(nn.AdamConfig{}, 2),
			[]nn.Tensor{tensor("m", 2), tensor("v", 1)}},
		{"no b", "load sgd: tensor b is missing", nn.NewSGD(0.1, 0, 2), nil},
		{"long b", "load sgd: tensor b is [3] with 3 values, want [2]", nn.NewSGD(0.1, 0, 2), []nn.Tensor{tensor("b", 3)}},
	} {
		if err := c.opt.Load(nn.State{Version: 5, Tensors: c.tensors}); err == nil || err.Error() != c.text {
			t.Errorf("%s: error %v, want %q", c.name, err, c.text)
		}
		s := c.opt.State()
		for _, have := range s.Tensors {
			if slices.Contains(have.Data, 7) || s.Version != 0 {
				t.Errorf("%s: the refused state was taken: %+v", c.name, s)
			}
		}
	}
}

// TestP7OptimizersRefuseAStateThatIsNotFinite, by the name of the tensor, and keep theirs.
func TestP7OptimizersRefuseAStateThatIsNotFinite(t *testing.T) {
	for _, opt := range []nn.Optimizer{
		nn.NewAdam(nn.AdamConfig{}, 2), nn.NewSGD(0.1, 0.9, 2), nn.NewRMSprop(nn.RMSpropConfig{Momentum: 0.9}, 2),
	} {
		for i, tensor := range opt.State().Tensors {
			for _, v := range []float64{math.NaN(), math.Inf(1)} {
				s := opt.State()
				s.Version = 5
				s.Tensors[i].Data[1] = float32(v)
				err := opt.Load(s)
				if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != tensor.Name || e.Index != 1 {
					t.Errorf("%T with %v in %s: %v", opt, v, tensor.Name, err)
				}
				if now := opt.State(); now.Version != 0 || now.CheckFinite() != nil {
					t.Errorf("%T has taken the state over: %+v", opt, now)
				}
			}
		}
	}
}

// TestRectifierKeepsWhatIsPositive, and lets the gradient through only there.
func TestRectifierKeepsWhatIsPositive(t *testing.T) {
	net := nn.New(4, 1, nn.ReLU())
	if y := net.Forward(nn.Matrix{Rows: 1, Cols: 4, Data: []float32{-2, 0, 3, float32(math.Inf(-1))}}); !slices.Equal(y.Data,
		[]float32{0, 0, 3, 0}) {
		t.Errorf("%v", y.Data)
	}
}

// TestEmptyBatch passes a network both ways, and changes no gradient.
func TestEmptyBatch(t *testing.T) {
	for _, c := range nets {
		net := c.build()
		if y := net.Forward(nn.Matrix{Cols: net.In()}); y.Rows != 0 || y.Cols != net.Out() || len(y.Data) != 0 {
			t.Errorf("%s: %+v", c.name, y)
		}
		backward(net, nn.Matrix{Cols: net.In()}, nn.Matrix{Cols: net.Out()})
		for i, g := range net.Grad() {
			if g != 0 {
				t.Fatalf("%s: gradient %d is %v", c.name, i, g)
			}
		}
	}
}

// TestMemoryOfALargerBatchIsKept for a smaller one, and not shown.
func TestMemoryOfALargerBatchIsKept(t *testing.T) {
	for _, c := range nets {
		used, fresh := c.build(), c.build()
		pass := func(n *nn.Net, rows int) nn.Matrix {
			n.ZeroGrad()
			in := nn.Matrix{Rows: rows, Cols: n.In(), Data: slices.Repeat([]float32{0.5}, rows*n.In())}
			out := n.Forward(in)
			backward(n, in, nn.Matrix{Rows: rows, Cols: n.Out(), Data: slices.Repeat([]float32{1}, rows*n.Out())})
			return out
		}
		pass(used, 40)
		got, want := pass(used, 3), pass(fresh, 3)
		if got.Rows != 3 || !slices.Equal(got.Data, want.Data) || !slices.Equal(used.Grad(), fresh.Grad()) {
			t.Errorf("%s: after a larger batch %v, without one %v", c.name, got, want)
		}
	}
}

// TestArchiveWithoutWordsHasNone: other readers want no empty "__metadata__".
func TestArchiveWithoutWordsHasNone(t *testing.T) {
	a := nn.Archive{Tensors: []nn.Tensor{{Name: "t", Shape: []int{1}, Data: []float32{1}}}}
	file, err := a.AppendBinary([]byte("before"))
	if err != nil || !bytes.HasPrefix(file, []byte("before")) || bytes.Contains(file, []byte("__metadata__")) {
		t.Errorf("%q, %v", file, err)
	}
	var b nn.Archive
	if err := b.UnmarshalBinary(file[len("before"):]); err != nil || b.Meta != nil || fmt.Sprint(b.Tensors) != fmt.Sprint(a.Tensors) {
		t.Errorf("%+v, %v", b, err)
	}
	a.Tensors[0].Name = "__metadata__"
	if _, err := a.AppendBinary(nil); err == nil || err.Error() != `archive: tensor name "__metadata__" is taken` {
		t.Errorf("a tensor in the place of the words: %v", err)
	}
}

// TestArchiveNamesWhatIsWrong with a file, and leaves the archive as it was.
func TestArchiveNamesWhatIsWrong(t *testing.T) {
	values := strings.Repeat("\x00", 8)
	for _, c := range []struct{ text, data, want string }{
		{`{} {}`, "", "header: more than one value"},
		{`{}]`, "", "header: more than one value"},
		{`[]`, "", "header: json: "},
		{`{"__metadata__":{"a":1}}`, "", "__metadata__: json: "},
		{`{"a":7}`, "", "tensor \"a\": json: "},
		{`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,8]}}`, values, `tensor "a" is "F16", want F32`},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, values, "tensor \"a\" of shape [1] at [4 8], want a start at 0"},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, values, "tensor \"a\" of shape [1] at [0 8], want a start at 0"},
		{`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}`, values, "tensor \"a\" of shape [3] at [0 12], want a start at 0"},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, values, "4 bytes after the last tensor"},
		{`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,-4]}}`, values, "tensor \"a\" of shape [-1] at [0 -4], want a start at 0"},
		{`{"a":{"dtype":"F32","shape":[-1,-2],"data_offsets":[0,8]}}`, values, "tensor \"a\" of shape [-1 -2] at [0 8], want a start at 0"},
		// The product is 2^64+2, which is the 2 values that there are if it wraps around.
		{`{"a":{"dtype":"F32","shape":[239075442,77158673929],"data_offsets":[0,8]}}`, values, "tensor \"a\" of shape [239075442 77158673929]"},
	} {
		a := nn.Archive{Meta: map[string]string{"old": "1"}}
		err := a.UnmarshalBinary(append(binaryHeader(c.text), c.data...))
		if !errors.Is(err, nn.ErrArchive) || !strings.HasPrefix(err.Error(), nn.ErrArchive.Error()+": "+c.want) {
			t.Errorf("%s: error %v, want %q", c.text, err, c.want)
		}
		if a.Meta["old"] != "1" || a.Tensors != nil {
			t.Errorf("%s: the archive is %+v", c.text, a)
		}
	}
}

// TestTensorsComeInTheOrderOfTheirPlaces, whatever their names are.
func TestTensorsComeInTheOrderOfTheirPlaces(t *testing.T) {
	a := nn.Archive{Tensors: []nn.Tensor{
		{Name: "z", Shape: []int{1}, Data: []float32{1}},
		{Name: "empty", Shape: []int{0, 3}, Data: []float32{}},
		{Name: "b", Shape: []int{1, 2}, Data: []float32{2, 3}},
		{Name: "scalar", Shape: []int{}, Data: []float32{4}},
	}}
	file, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b nn.Archive
	if err := b.UnmarshalBinary(file); err != nil || fmt.Sprintf("%#v", b.Tensors) != fmt.Sprintf("%#v", a.Tensors) {
		t.Errorf("%+v, want %+v: %v", b.Tensors, a.Tensors, err)
	}
}

// TestStateOfAPrefixHasItsTensorsOnly, and not those of a prefix that begins like it.
func TestStateOfAPrefixHasItsTensorsOnly(t *testing.T) {
	var a nn.Archive
	for i, prefix := range []string{"net", "net2", "n"} {
		a.Put(prefix, nn.State{Version: uint64(i + 1), Tensors: []nn.Tensor{{Name: "w", Shape: []int{1}, Data: []float32{float32(i)}}}})
	}
	for i, prefix := range []string{"net", "net2", "n"} {
		s, err := a.State(prefix)
		if err != nil || s.Version != uint64(i+1) || len(s.Tensors) != 1 || s.Tensors[0].Name != "w" || s.Tensors[0].Data[0] != float32(i) {
			t.Errorf("%s: %+v, %v", prefix, s, err)
		}
	}
}

// A file of somebody else holds any names.
func TestErrorsOfArchivesArePrintable(t *testing.T) {
	bad, err := json.Marshal(logtest.Hostile)
	if err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string]string{
		"type":   `{` + string(bad) + `:{"dtype":` + string(bad) + `,"shape":[1],"data_offsets":[0,4]}}`,
		"place":  `{` + string(bad) + `:{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`,
		"number": `{` + string(bad) + `:{"dtype":"F32","shape":` + strings.Repeat("1", 10<<10) + `,"data_offsets":[0,4]}}`,
	} {
		file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		err := new(nn.Archive).UnmarshalBinary(append(file, 0, 0, 0, 0))
		if !errors.Is(err, nn.ErrArchive) || logtest.Faults(err.Error()) != "" || len(err.Error()) > 2<<10 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestArchiveKeepsOtherTypes: whole numbers are written as such, and are no weights.
func TestArchiveKeepsOtherTypes(t *testing.T) {
	a := nn.Archive{Tensors: []nn.Tensor{
		{Name: "bytes", Shape: []int{3}, Bytes: []uint8{1, 2, 255}}, {Name: "f", Shape: []int{1, 2}, Data: []float32{1.5, -2}},
		{Name: "ints", Shape: []int{2}, Ints: []int32{-7, 1 << 30}}, {Name: "none", Shape: []int{0}, Words: []uint64{}},
		{Name: "words", Shape: []int{1}, Words: []uint64{1<<63 + 1}},
	}}
	file, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b nn.Archive
	if err := b.UnmarshalBinary(file); err != nil {
		t.Fatal(err)
	}
	for _, want := range a.Tensors {
		got, ok := nn.State{Tensors: b.Tensors}.Lookup(want.Name)
		if !ok || !slices.Equal(got.Bytes, want.Bytes) || !slices.Equal(got.Data, want.Data) || !slices.Equal(got.Ints, want.Ints) ||
			!slices.Equal(got.Words, want.Words) || !slices.Equal(got.Shape, want.Shape) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for _, bad := range []nn.Tensor{
		{Name: "x", Shape: []int{2}, Bytes: []uint8{1}}, {Name: "x", Shape: []int{2}, Bytes: []uint8{1}, Data: []float32{1}},
	} {
		if _, err := (&nn.Archive{Tensors: []nn.Tensor{bad}}).AppendBinary(nil); err == nil {
			t.Errorf("%+v is written", bad)
		}
	}
	net := nn.New(1, 1, nn.Dense(1, nn.Zeros))
	if err := net.Load(nn.State{Tensors: []nn.Tensor{
		{Name: "dense0.weight", Shape: []int{1, 1}, Ints: []int32{1}}, {Name: "dense0.bias", Shape: []int{1}, Data: []float32{1}},
	}}); err == nil {
		t.Error("whole numbers are taken for weights")
	}
}
