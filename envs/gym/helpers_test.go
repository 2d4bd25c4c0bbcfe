package gym

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
)

// contextThat returns a context that ends with cause when began is closed.
func contextThat(ctx context.Context, began <-chan struct{}, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-began:
			cancel(cause)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		wait.Wait()
	}
}

// onceWritten returns a writer that closes c at its first Write.
func onceWritten(c chan<- struct{}) io.Writer { return &signalWriter{c: c} }

type signalWriter struct {
	once sync.Once
	c    chan<- struct{}
}

func (w *signalWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.c) })
	return len(p), nil
}

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
