//go:build !unix

package cli

import (
	"errors"
	"math"
)

// fileLimit knows of no limit here.
func fileLimit() (uint64, error) { return math.MaxUint64, errors.ErrUnsupported }
