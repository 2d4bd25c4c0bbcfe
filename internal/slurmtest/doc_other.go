//go:build !linux

// Package slurmtest runs a real Slurm for tests; it needs Linux.
package slurmtest
