//go:build !unix

package cli

import (
	"errors"
	"math"
)

// fileLimit returns no limit: this system does not report one.
func fileLimit() (uint64, error) { return math.MaxUint64, errors.ErrUnsupported }
