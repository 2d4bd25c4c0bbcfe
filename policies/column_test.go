package policies_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// mixed has a column of each kind.
var mixed = []policies.Column{
	{Name: "image", Kind: policies.Uint8, Shape: []int{2, 3}}, {Name: "mask", Kind: policies.Bool}, {Name: "token", Kind: policies.Int32,
		Shape: []int{2}},
	{Name: "return", Kind: policies.Float32}, {Name: "clock", Kind: policies.Uint64, Shape: []int{1}},
}

// mixedBatch has rows first..last, each recognisable in every column.
func mixedBatch(first, last int) *policies.Batch {
	b := new(policies.Batch)
	b.Init(mixed...)
	b.Resize(last - first + 1)
	for i := range b.N {
		v := first + i
		for k := range 6 {
			b.Bytes("image")[6*i+k] = uint8(v + k)
		}
		b.Bytes("mask")[i] = uint8(v % 2)
		b.Ints("token")[2*i], b.Ints("token")[2*i+1] = int32(v), int32(-v)
		b.Floats("return")[i] = float32(v) / 2
		b.Words("clock")[i] = uint64(v) << 50
	}
	return b
}

// wants fails the test unless b has the rows of mixedBatch with these numbers.
func wants(t *testing.T, name string, b *policies.Batch, rows ...int) {
	t.Helper()
	want := new(policies.Batch)
	want.Init(mixed...)
	for _, r := range rows {
		want.AppendBatch(mixedBatch(r, r))
	}
	if diff := cmp.Diff(want, b, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	if err := b.Check(mixed...); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func TestColumnsOfAllKindsAreCopied(t *testing.T) {
	b := mixedBatch(0, 3)
	wants(t, "filled", b, 0, 1, 2, 3)
	b.AppendRange(mixedBatch(10, 19), 4, 6)
	wants(t, "appended", b, 0, 1, 2, 3, 14, 15)
	b.CopyRows(1, mixedBatch(20, 29), 9, 0)
	wants(t, "rows copied", b, 0, 29, 20, 3, 14, 15)
	b.CopyRange(0, b, 2, 4)
	wants(t, "moved", b, 20, 3, 20, 3, 14, 15)
	b.Resize(2)
	wants(t, "cut", b, 20, 3)
	b.InitLike(mixedBatch(0, 5))
	wants(t, "emptied", b)
}

// TestRowsGoIntoABatchWithMoreColumns, which stay as they are.
func TestRowsGoIntoABatchWithMoreColumns(t *testing.T) {
	var b policies.Batch
	b.Init(append(slices.Clone(mixed), policies.Column{Name: policies.Weight, Kind: policies.Float32})...)
	b.Resize(2)
	b.Floats(policies.Weight)[1] = 7
	b.CopyRows(0, mixedBatch(5, 6), 1, 0)
	if w := b.Floats(policies.Weight); w[1] != 7 || b.Ints("token")[0] != 6 || b.Ints("token")[2] != 5 {
		t.Errorf("weights %v, tokens %v", w, b.Ints("token"))
	}
	refused(t, "a batch with fewer columns", func() { mixedBatch(0, 1).CopyRows(0, &b, 0) })
	refused(t, "a batch with more columns as a range", func() { b.CopyRange(0, mixedBatch(0, 1), 0, 1) })
}

func TestColumnsThatAreNotThereAreNil(t *testing.T) {
	b := mixedBatch(0, 1)
	if b.Column("x") != nil || b.Floats("x") != nil || b.Ints("x") != nil || b.Bytes("x") != nil || b.Words("x") != nil {
		t.Error("a column that was not declared is there")
	}
	if b.Floats("image") != nil || b.Words("return") != nil {
		t.Error("a column has values of another kind")
	}
}

func TestColumnsHaveAPrice(t *testing.T) {
	if got := policies.RowBytes(mixed); got != 6+1+8+4+8 {
		t.Errorf("a row of %d bytes", got)
	}
	if got := fmt.Sprint(mixed[0], ", ", mixed[1], ", ", policies.Kind(9), ", ",
		policies.Kind(0)); got != "image uint8 [2 3], mask bool, Kind(9), Kind(0)" {
		t.Error(got)
	}
	if policies.Kind(0).Bytes() != 0 || policies.Kind(77).Bytes() != 0 {
		t.Error("kinds that are none have a size")
	}
	b := mixedBatch(0, 0)
	schema := b.Schema()
	schema[0].Shape[0] = 99
	if b.Columns[0].Shape[0] != 2 {
		t.Error("a schema shares memory with its batch")
	}
}

func TestP7BatchNamesTheColumnThatIsNotFinite(t *testing.T) {
	b := mixedBatch(0, 3)
	if err := b.CheckFinite(); err != nil {
		t.Error(err)
	}
	b.Floats("return")[2] = float32(math.NaN())
	if e, ok := errors.AsType[*nn.NonFiniteError](b.CheckFinite()); !ok || e.Tensor != "return" || e.Index != 2 {
		t.Errorf("%v", e)
	}
}

func TestCheckLikeSaysWhatDiffers(t *testing.T) {
	b := mixedBatch(0, 3)
	for want, edit := range map[string]func(o *policies.Batch){
		"batch of 4 columns, want 5":                                  func(o *policies.Batch) { o.Columns = o.Columns[:4] },
		"batch with the column flag bool, want mask bool":             func(o *policies.Batch) { o.Columns[1].Name = "flag" },
		"batch with the column token int32 [3], want token int32 [2]": func(o *policies.Batch) { o.Columns[2].Shape = []int{3} },
		`column "token" of 4 rows has 7 values, want 8`:               func(o *policies.Batch) { o.Columns[2].Ints = o.Columns[2].Ints[:7] },
		`column "return" of 4 rows has 8 values, want 4`:              func(o *policies.Batch) { o.Columns[3].Ints = make([]int32, 4) },
	} {
		o := mixedBatch(0, 3)
		edit(o)
		if err := o.CheckLike(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := b.CheckLike(b); err != nil {
		t.Error(err)
	}
}

func ExampleBatch() {
	var b policies.Batch
	b.Init(policies.Column{Name: policies.Obs, Kind: policies.Float32, Shape: []int{2}}, policies.Column{Name: "lives", Kind: policies.Uint8})
	b.Resize(2)
	copy(b.Floats(policies.Obs), []float32{1, 2, 3, 4})
	b.Bytes("lives")[1] = 3
	b.AppendRange(&b, 1, 2)
	fmt.Printf("%d %v %v\n", b.N, b.Floats(policies.Obs), b.Bytes("lives"))
	// Output: 3 [1 2 3 4 3 4] [0 3 3]
}
