package train

import (
	"os"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// forceFlag returns the flag --force of all commands that write files whose names the user gives: they replace none without it.
func forceFlag() urfave.Flag {
	return &urfave.BoolFlag{Name: "force", Usage: "replace existing files"}
}

// free returns an error if the file exists and must not be replaced. name is the flag for another file.
func free(ctx *urfave.Context, name, path string) error {
	if _, err := os.Lstat(path); err == nil && !ctx.Bool("force") {
		return call.Usage("%s: file already exists: give --force to replace it, or another --%s FILE", path, name)
	}
	return nil
}
