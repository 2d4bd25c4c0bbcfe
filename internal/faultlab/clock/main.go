// Command clock writes an overlay that lets a test set the time of day of one program:
//
//	clock FOLDER && go test -overlay FOLDER/overlay.json -tags clockjump ...
//
// The overlay replaces a file of package time by one with the function
//
//	// Jump adds so many seconds to the time of day that Now returns.
//	func Jump(seconds int64)
//
// Monotonic time continues as before, as when the system's clock is set.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clock FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "clock:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	root, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	changed, err := jumping(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "time.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: file}})
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(file, []byte(changed), 0o644),
		os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644),
	)
}

// jumping returns the source of package time with Jump.
func jumping(source string) (string, error) {
	const begin, line = "func Now() Time {\n", "\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(source, begin+line) != 1 {
		return "", errors.New("this version of Go has another time.Now: see what it does, and change this program")
	}
	return strings.Replace(source, begin+line, begin+line+"\tsec += jumped\n", 1) + `
// jumped is how many seconds the time of day has been set forward.
var jumped int64

// Jump adds so many seconds to the time of day that Now returns.
func Jump(seconds int64) { jumped += seconds }
`, nil
}
