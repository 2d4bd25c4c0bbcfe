package slurm

import "testing"

func TestQuoteIsOneWordOfTheShell(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "--lr=1e-3": "--lr=1e-3"} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
