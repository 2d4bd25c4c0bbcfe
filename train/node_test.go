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
