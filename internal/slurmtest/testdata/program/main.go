// Program is a job for tests: each node prints its id. In its first step it follows
// its argument, such as "2=fail", or waits for the end of the job, and then saves
// the number of its starts, to continue.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	file := func(what string) string { return filepath.Join(node.Dir(), fmt.Sprintf("%s-%d", what, node.ID())) }
	run := 1
	if node.Resume() {
		saved, err := os.ReadFile(file("saved"))
		if err != nil {
			return fmt.Errorf("nothing to resume from: %w", err)
		}
		if run, err = strconv.Atoi(string(saved)); err != nil {
			return err
		}
		run++
	}
	t := task.New[struct{}](node)
	t.OnFinish(func(_ context.Context, o task.Outcome) error {
		if o.Kind == task.Failure {
			return nil
		}
		return os.WriteFile(file("saved"), []byte(strconv.Itoa(run)), 0o600)
	})
	t.Use(func(ctx context.Context, _ *struct{}, next task.Next) error {
		fmt.Printf("run %d of node %d of %d on %s, %d processors\n", run, node.ID(), node.Size(), os.Getenv("SLURMD_NODENAME"),
			runtime.GOMAXPROCS(0))
		if node.Attempt() == 0 { // the others have passed it when a node is started again
			if err := node.Barrier(ctx, "all are here"); err != nil {
				return err
			}
		}
		// A rename makes the complete file visible at once.
		if err := os.WriteFile(file("writing"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return err
		}
		if err := os.Rename(file("writing"), file("here")); err != nil {
			return err
		}
		switch script(node.ID()) {
		case "fail":
			return errors.New("out of luck")
		case "go":
			return next(ctx)
		case "maps": // done when it has mapped the memory of all other nodes
			for ctx.Err() == nil && len(memories()) < node.Size() {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
			fmt.Printf("node %d maps the memory of %d nodes\n", node.ID(), len(memories()))
			return next(ctx)
		case "again": // done when it was started to continue
			if run > 1 {
				return next(ctx)
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	return t.Run(ctx, task.MaxSteps(1))
}

// memories returns the memory files of nodes that this process has mapped, its own among them.
func memories() map[string]bool {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	found := map[string]bool{}
	for _, word := range strings.Fields(string(b)) {
		if strings.HasPrefix(word, "/memfd:ditask-") {
			found[word] = true
		}
	}
	return found
}

func script(id int) string {
	for _, arg := range os.Args[1:] {
		if who, what, _ := strings.Cut(arg, "="); who == fmt.Sprint(id) || who == "all" {
			return what
		}
	}
	return "wait"
}
