package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const program = `package main

import (
	"fmt"
	"time"
)

func main() {
	before := time.Now()
	time.Jump(3600)
	after := time.Now()
	fmt.Println(after.Sub(before) < time.Minute, after.Round(0).Sub(before.Round(0)) > 59*time.Minute)
}
`

func TestOnlyTheTimeOfDayJumps(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", "-overlay", filepath.Join(dir, "overlay.json"), file).CombinedOutput()
	if err != nil || string(out) != "true true\n" {
		t.Errorf("%v: %s, want true true", err, out)
	}
}

func TestAnotherTimeNowIsRefused(t *testing.T) {
	if _, err := jumping("package time\n"); err == nil {
		t.Error("no error for a file without Now")
	}
}
