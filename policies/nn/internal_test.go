package nn

import (
	"fmt"
	"strings"
	"testing"
)

func TestMatrixOfAnotherSizeIsRefused(t *testing.T) {
	for name, m := range map[string]Matrix{"columns": {1, 3, make([]float32, 3)}, "values": {2, 2, make([]float32, 3)}} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "nn: input of ") || !strings.HasSuffix(p, "want 2 columns") {
					t.Errorf("%s: panic %q", name, p)
				}
			}()
			m.check(2)
		}()
	}
	Matrix{2, 2, make([]float32, 4)}.check(2)
}
