//go:build race

package middleware_test

// raceEnabled says that pools drop items at random, so that allocation counts
// mean nothing.
const raceEnabled = true
