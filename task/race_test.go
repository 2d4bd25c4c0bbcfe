//go:build race

package task

// raceEnabled says that pools drop items at random, so that allocation counts
// mean nothing.
const raceEnabled = true
