// Package nearest finds the name that a misspelt word was meant to be, for the hint of an error.
//
//	return fmt.Errorf("unknown key %q%s", key, nearest.Hint(key, keys)) // unknown key "rat" (did you mean rate?)
//
// Case is ignored. Only the first 64 bytes of a word and of a name count, so that a hint costs little for any
// word.
package nearest

import (
	"fmt"
	"math"
	"strings"
)

// longest is how many bytes of a word or name count.
const longest = 64

// Hint returns " (did you mean NAME?)" with the nearest of names, or "" if none is near: more than half of word's
// letters differ, or more than two of a short word.
func Hint(word string, names []string) string {
	name, d := closest(word, names)
	if n := len(word); name == "" || n > longest || d > max(min(2, n-1), n/2) {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", name)
}

// Name returns the nearest of names, of equally near ones the first. It is "" only if there are none.
func Name(word string, names []string) string {
	name, _ := closest(word, names)
	return name
}

// closest also returns how many letters differ. A name that contains the word is as near as if two did.
func closest(word string, names []string) (name string, least int) {
	word, least = lower(word), math.MaxInt
	for _, n := range names {
		d := distance(word, lower(n))
		if len(word) >= 3 && strings.Contains(lower(n), word) {
			d = min(d, 2)
		}
		if d < least {
			name, least = n, d
		}
	}
	return name, least
}

func lower(s string) string { return strings.ToLower(s[:min(len(s), longest)]) }

// distance returns how many bytes must be changed, inserted or removed to make b of a (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
