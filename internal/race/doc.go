// Package race tells tests whether the race detector watches them: everything takes
// ten times as long then, and sync.Pool drops items at random, so that counts of
// allocations mean nothing.
package race
