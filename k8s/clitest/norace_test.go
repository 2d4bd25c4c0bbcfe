//go:build !race

package clitest

const race = false
