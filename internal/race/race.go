//go:build race

package race

// Enabled says that it does.
const Enabled = true
