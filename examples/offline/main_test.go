package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestIsBetterThanTheData: with one seed, cloning has a mean return above that of the data, and conservative
// Q-learning one of at least 400 of 500.
func TestIsBetterThanTheData(t *testing.T) {
	if testing.Short() {
		t.Skip("learns for some seconds")
	}
	var out bytes.Buffer
	if err := play(t.Context(), &out, t.TempDir(), 4); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q, want two lines", lines)
	}
	for i, atLeast := range []float64{100, 400} {
		_, numbers, _ := strings.Cut(lines[i], "mean return ")
		var mean, data float64
		var episodes int
		if _, err := fmt.Sscanf(numbers, "%f of %d episodes; the data has %f", &mean, &episodes, &data); err != nil || mean <= data ||
			mean < atLeast {
			t.Errorf("%s: want a mean of at least %v and above that of the data: %v", lines[i], atLeast, err)
		}
	}
}
