//go:build race

package clitest

// race makes ditask look for races when the tests do.
const race = true
