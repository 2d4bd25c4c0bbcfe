// Command steady is a job for tests of launchers and operators: every node sends all
// others increasing numbers, 20 a second, and prints once a second what it has
// received, as one line of JSON after the word "steady". When its folder has a file
// named stop, node 0 finishes the job.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// Tick is one number of one life of a node.
type Tick struct{ Life, Number uint64 }

// Heard has the messages that a node has received from one incarnation of another.
type Heard struct {
	First, Last uint64
	Missing     uint64 // numbers between them that did not come
	Repeated    uint64 // numbers that came again, or too late
}

var tick = task.NewEvent[Tick]("tick")

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	var mu sync.Mutex
	heard := map[string]*Heard{} // by node and life
	life := uint64(time.Now().UnixNano())
	var number, failed uint64

	t := task.New[struct{}](node)
	tick.On(t, func(ctx context.Context, k Tick) error {
		mu.Lock()
		defer mu.Unlock()
		from := fmt.Sprintf("%d/%d", task.Sender(ctx), k.Life)
		h := heard[from]
		if h == nil {
			h = &Heard{First: k.Number, Last: k.Number - 1}
			heard[from] = h
		}
		if k.Number <= h.Last {
			h.Repeated++
			return nil
		}
		h.Missing += k.Number - h.Last - 1
		h.Last = k.Number
		return nil
	})
	clock := time.NewTicker(50 * time.Millisecond)
	defer clock.Stop()
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		select {
		case <-clock.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		number++
		if err := tick.Emit(ctx, t, Tick{life, number}, task.OnlyRemote()); err != nil {
			failed++
			node.Logger().Warn("emit", "number", number, "error", err)
		}
		if number%20 != 0 {
			return nil
		}
		if _, err := os.Stat(filepath.Join(node.Dir(), "stop")); err == nil && node.ID() == 0 {
			t.Finish("there is a file named stop")
		}
		mu.Lock()
		defer mu.Unlock()
		line, err := json.Marshal(map[string]any{"Node": node.ID(), "Life": life, "Sent": number, "Failed": failed, "Heard": heard})
		fmt.Println("steady", string(line))
		return err
	}))
	return t.Run(ctx)
}
