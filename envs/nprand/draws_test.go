package nprand_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs/nprand"
)

// A draw of testdata/draws.json.
type draw struct {
	kind string
	a, b int64
	want string
}

func (d *draw) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&d.kind, &d.a, &d.b, &d.want})
}

func (d *draw) got(r *nprand.PCG64) string {
	switch d.kind {
	case "integers":
		return strconv.FormatInt(r.Integers(d.a, d.b), 10)
	case "random":
		want, err := strconv.ParseFloat(d.want, 64)
		if v := r.Float64(); err != nil || v != want {
			return fmt.Sprintf("%x", v)
		}
		return d.want
	case "choice":
		return strconv.Itoa(r.Choice(int(d.a)))
	case "weighted":
		return strconv.Itoa(r.WeightedChoice([]float64{0.2, 0.5, 0.3}))
	}
	items := make([]string, d.a)
	for i := range items {
		items[i] = strconv.Itoa(i)
	}
	r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return strings.Join(items, " ")
}

func TestSameDrawsAsNumpy(t *testing.T) {
	text, err := os.ReadFile("testdata/draws.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Seed  uint64 `json:"seed,string"`
		Steps []draw `json:"steps"`
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		r := nprand.New(row.Seed)
		for i, d := range row.Steps {
			if got := d.got(r); got != d.want {
				t.Fatalf("seed %d, draw %d, %s %d %d: %s, numpy has %s", row.Seed, i, d.kind, d.a, d.b, got, d.want)
			}
		}
	}
}

func TestIntegersOfAnEmptyIntervalPanic(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); p != "nprand: integers in an empty interval" {
			t.Errorf("panic %q", p)
		}
	}()
	nprand.New(1).Integers(3, 3)
}

func ExamplePCG64_Choice() {
	r := nprand.New(42)
	fmt.Println(r.Choice(6), r.Choice(6), r.Choice(6))
	// Output: 0 4 3
}
