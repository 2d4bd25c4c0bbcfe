package train_test

import (
	"log/slog"
	"testing"

	"github.com/ditask/ditask/task"
	"github.com/ditask/ditask/train"
)

type node struct {
	task.Node
	dir string
}

func (node) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }
func (node) Size() int            { return 1 }
func (node) Seed() uint64         { return 1 }
func (n node) Dir() string        { return n.dir }
func (node) Resume() bool         { return false }
func (node) MustResume() bool     { return false }

func lone(t *testing.T, dir string) train.Node {
	t.Helper()
	return node{task.Alone(), dir}
}

// resuming is a node that continues from the checkpoint in its folder.
type resuming struct{ node }

func (resuming) Resume() bool     { return true }
func (resuming) MustResume() bool { return true }

func resumed(t *testing.T, dir string) train.Node {
	t.Helper()
	return resuming{node{task.Alone(), dir}}
}
