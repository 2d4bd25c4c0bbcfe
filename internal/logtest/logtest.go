// Package logtest keeps logged text, for tests that read it.
//
//	var log logtest.Buffer
//	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
//	...
//	if !strings.Contains(log.String(), "refused") {
package logtest

import (
	"strings"
	"sync"
)

// Buffer is a text that several goroutines write and read. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds p to the text. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text up to now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
