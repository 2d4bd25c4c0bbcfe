package cli

import "testing"

func TestDidYouMean(t *testing.T) {
	known := []string{"--topology", "--ports", "plan"}
	for word, want := range map[string]string{
		"--topolgy": " (did you mean --topology?)", "--port": " (did you mean --ports?)",
		"pln": " (did you mean plan?)", "--zzzzzz": "", "x": "",
	} {
		if got := didYouMean(word, known); got != want {
			t.Errorf("%s: %q", word, got)
		}
	}
}
