package policies_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// two are networks with one weight and one bias each, and their version.
func two() (nets [2]*nn.Net, version *uint64, parts policies.Parts) {
	version = new(uint64)
	for i, name := range []string{"x.a", "x.b"} {
		nets[i] = nn.New(1, uint64(i), nn.Dense(1, nn.Glorot))
		parts = append(parts, policies.NetPart(name, nets[i], version))
	}
	return nets, version, parts
}

// TestPartsTravelTogether: what does not fit changes nothing.
func TestPartsTravelTogether(t *testing.T) {
	from, version, parts := two()
	*version = 7
	s := parts.State(*version)
	to, got, other := two()
	to[0].Weights()[0], to[1].Weights()[0] = 1, 2
	if err := other.Load(s); err != nil || *got != 7 || !slices.Equal(to[0].Weights(), from[0].Weights()) || !slices.Equal(to[1].Weights(),
		from[1].Weights()) {
		t.Errorf("version %d, %v", *got, err)
	}
	to, got, other = two()
	before := slices.Clone(to[0].Weights())
	from[0].Weights()[0]++
	s = parts.State(8)
	s.Tensors[len(s.Tensors)-1].Data[0] = float32(math.Inf(1))
	if err := other.Load(s); err == nil || !strings.HasPrefix(err.Error(), "load x.b: ") || *got != 0 || !slices.Equal(to[0].Weights(),
		before) {
		t.Errorf("version %d, weights %v: %v", *got, to[0].Weights(), err)
	}
	from[1].Weights()[0] = float32(math.NaN())
	var a nn.Archive
	if err := parts.Save(&a); err == nil || !strings.HasPrefix(err.Error(), "save x.b: tensor dense0.weight is not finite") {
		t.Errorf("%v", err)
	}
}

// TestValuesPartTravels with its version, if it has one; what does not fit changes nothing.
func TestValuesPartTravels(t *testing.T) {
	nan := float32(math.NaN())
	for _, version := range []*uint64{nil, new(uint64)} {
		values := []float32{1, 2}
		part := policies.ValuesPart("x", values, version)
		if version != nil {
			*version = 7
		}
		s := part.Save()
		values[0] = 3
		if len(s.Tensors) != 1 || !slices.Equal(s.Tensors[0].Data, []float32{1, 2}) || !slices.Equal(s.Tensors[0].Shape, []int{2}) {
			t.Errorf("%+v", s)
		}
		s.Version += 2
		for want, data := range map[string][]float32{
			"tensor values has 1 values, want 2": {5}, "tensor values has 3 values": {5, 5, 5},
			"tensor values is not finite: value 1 is NaN": {5, nan},
		} {
			bad := nn.State{Version: 99, Tensors: []nn.Tensor{{Name: "values", Shape: []int{len(data)}, Data: data}}}
			if err := part.Load(bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if err := part.Load(nn.State{}); err == nil {
			t.Error("a state without the tensor passes")
		}
		if !slices.Equal(values, []float32{3, 2}) || version != nil && *version != 7 {
			t.Errorf("values %v after what was refused", values)
		}
		if err := part.Load(s); err != nil || !slices.Equal(values, []float32{1, 2}) {
			t.Errorf("values %v, %v", values, err)
		}
		if version == nil && s.Version != 2 || version != nil && *version != 9 {
			t.Errorf("version %d", s.Version)
		}
	}
}

func TestNeedsNamesWhatIsMissing(t *testing.T) {
	b := mixedBatch(0, 3)
	for want, columns := range map[string][]policies.Column{
		"":                          {mixed[3], mixed[0]},
		"no column x float32":       {mixed[3], {Name: "x", Kind: policies.Float32}},
		"no column token int32 [3]": {{Name: "token", Kind: policies.Int32, Shape: []int{3}}},
		"no column mask uint8":      {{Name: "mask", Kind: policies.Uint8}},
	} {
		if err := b.Needs(columns...); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want+" of 4 rows") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	b.Floats("return")[1] = float32(math.NaN())
	if e, ok := errors.AsType[*nn.NonFiniteError](b.Needs(mixed[3])); !ok || e.Tensor != "return" {
		t.Errorf("%v", e)
	}
	if err := b.Needs(mixed[0]); err != nil {
		t.Errorf("a column that is not needed: %v", err)
	}
	b.Resize(0)
	if err := b.Needs(); err == nil {
		t.Error("an empty batch passes")
	}
	cause := errors.New("cause")
	if err := error(&policies.UpdateError{Algorithm: "x", Update: 3, Err: cause}); err.Error() != "x update 3: cause" || !errors.Is(err,
		cause) {
		t.Error(err)
	}
}

func TestNumbersPart(t *testing.T) {
	x, y := 0.1, math.MaxFloat64
	part := policies.NumbersPart("n", &x, &y)
	s := part.Save()
	x, y = 0, 0
	if err := part.Load(s); err != nil || x != 0.1 || y != math.MaxFloat64 {
		t.Errorf("%v and %v, %v", x, y, err)
	}
	for want, words := range map[string][]uint64{"1 values, want 2": {0}, "value 1 is NaN": {0, math.Float64bits(math.NaN())}} {
		s.Tensors[0].Words = words
		if err := part.Load(s); err == nil || !strings.Contains(err.Error(), want) || x != 0.1 {
			t.Errorf("%v, want %s; x is %v", err, want, x)
		}
	}
}
