package train

import (
	"os"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// forceFlag is that of all commands that write files whose names the user gives: they replace none without it.
func forceFlag() urfave.Flag {
	return &urfave.BoolFlag{Name: "force", Usage: "replace files that are there"}
}

// free reports a file that is there and must not be replaced. name is the flag that takes another one.
func free(ctx *urfave.Context, name, path string) error {
	if _, err := os.Lstat(path); err == nil && !ctx.Bool("force") {
		return call.Usage("%s: it is there already: give --force to replace it, or another --%s FILE", path, name)
	}
	return nil
}
