package pages

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/pythontest"
)

// TestTheFirstPolicy follows docs/first-policy.md in an empty folder: it saves the files and runs the commands.
func TestTheFirstPolicy(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	pythontest.Program(t)
	page, err := os.ReadFile("../../docs/first-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	w := leak.Check(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	bin, dir := t.TempDir(), t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, "ditask"), "../../ditask")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"my_env.py", "play.py"} {
		_, after, ok1 := strings.Cut(string(page), "Save it as `"+name+"`:\n\n```python\n")
		text, _, ok2 := strings.Cut(after, "```\n")
		if !ok1 || !ok2 {
			t.Fatalf("the page has no %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for line := range strings.Lines(string(page)) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		count++
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir, cmd.Env = dir, append(w.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s%v\n%s", command, err, out)
		}
	}
	if count < 10 {
		t.Errorf("%d commands, want at least 10", count)
	}
	for _, name := range []string{"curve.svg", "policy.onnx", "runs/first/config.yaml"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
