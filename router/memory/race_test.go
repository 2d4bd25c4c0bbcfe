//go:build race

package memory_test

// raceEnabled says that everything takes ten times as long.
const raceEnabled = true
