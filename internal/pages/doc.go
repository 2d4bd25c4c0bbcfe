// Package pages holds the documentation to the program: its tests compare the pages below docs with the code.
//
//	go test ./internal/pages           # fails where a page and the program differ
//	go test ./internal/pages -update   # writes the generated parts of docs/algorithms again
//
// The tests cover three things. Every relative link of every page, with its anchor, leads to a file and a heading.
// The settings, the presets and the Go program on a page below docs/algorithms are those of the algorithm's package.
// Every command "ditask train" or "ditask env" in a block of a page is one that ditask accepts; "ditask train" runs
// with --dry-run added.
//
// The package has no code besides its tests.
package pages
