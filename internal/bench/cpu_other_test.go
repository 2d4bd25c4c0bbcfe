//go:build !unix

package bench

import "time"

// cpu is the time of the clock, which is all that there is here.
func cpu() time.Duration { return clock() }
