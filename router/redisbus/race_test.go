//go:build race

package redisbus_test

// raceEnabled says that everything takes ten times as long.
const raceEnabled = true
