// Package layers checks the direction of imports: its test reads a block of
// arrows, and every Go file of the module with any build tags, and fails on an
// import that no arrow allows.
//
//	go test ./internal/layers
//
// A new package adds its line to the block. Do not relax an existing line to make
// a build pass: either the import is wrong, or the design has changed, and then
// docs/ARCHITECTURE.md changes in the same commit.
package layers
