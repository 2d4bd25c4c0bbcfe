//go:build linux

package launch_test

import (
	"context"
	"strings"
	"testing"
)

// contextUntil is done once n lines with the text were written.
func contextUntil(t *testing.T, b *buffer, n int, text string) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b.found = func(line string) {
		if strings.Contains(line, text) {
			if n--; n == 0 {
				cancel()
			}
		}
	}
	return ctx, cancel
}
