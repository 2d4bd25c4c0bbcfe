package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// binary describes the sources of this binary.
type binary struct {
	Version  string `json:"version"`            // of the module, or (devel)
	Revision string `json:"revision,omitempty"` // the commit
	Modified bool   `json:"modified"`           // the working tree differed from the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// version prints the version and the sources of this binary.
func (c command) version(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	b := binaryOf(debug.ReadBuildInfo())
	if ctx.Bool("json") {
		return c.WriteJSON(b)
	}
	_, err := fmt.Fprintln(c.Stdout, b)
	return err
}

func binaryOf(info *debug.BuildInfo, ok bool) binary {
	b := binary{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the version as one line.
func (b binary) String() string {
	text := "ditask " + b.Version
	if b.Revision != "" {
		text += fmt.Sprintf(" %.12s", b.Revision)
	}
	if b.Modified {
		text += " (changed)"
	}
	return fmt.Sprintf("%s %s %s/%s", text, b.Go, b.OS, b.Arch)
}
