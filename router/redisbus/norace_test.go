//go:build !race

package redisbus_test

const raceEnabled = false
