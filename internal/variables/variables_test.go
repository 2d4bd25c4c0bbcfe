package variables_test

import (
	"testing"

	"github.com/ditask/ditask/internal/variables"
)

func TestFaultsAreJoinedWithVariableAndValue(t *testing.T) {
	vars := map[string]string{"EMPTY": "", "WORD": "x", "LARGE": "9", "GOOD": "3"}
	r := variables.Reader{Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }}
	if n := r.Number("GOOD", 1, 4, "set it"); n != 3 {
		t.Errorf("GOOD is %d, want 3", n)
	}
	if n := r.Number("MISSING", 1, 4, ""); n != 0 || r.Err() != nil {
		t.Errorf("a number that need not be set is %d, with the fault %v", n, r.Err())
	}
	r.Number("MISSING", 1, 4, "set it")
	r.Text("EMPTY", "fill it")
	r.Number("WORD", 1, 4, "")
	r.Number("LARGE", 1, 4, "set it")
	r.Faultf("GOOD", "not with %s", "WORD")
	const want = `MISSING is not set: set it, or give --platform local
EMPTY is empty: fill it, or give --platform local
WORD="x": want a number from 1 to 4
LARGE="9": want a number from 1 to 4
GOOD="3": not with WORD`
	if got := r.Err().Error(); got != want || r.Faults() != 5 {
		t.Errorf("%d faults:\n%s\nwant 5:\n%s", r.Faults(), got, want)
	}
}
