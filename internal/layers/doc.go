// Package layers holds the direction of imports: its test reads a block of
// arrows, and every Go file of the module whatever its build tags, and fails on
// an import that no arrow allows.
//
//	go test ./internal/layers
//
// A new package adds its line to the block. A line that is there is not relaxed
// to make a build pass: either the import is wrong, or the design has changed,
// and then docs/ARCHITECTURE.md changes in the same commit.
package layers
