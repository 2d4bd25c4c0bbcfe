package train

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/train"
)

// ExportCommand returns the command "ditask export".
func ExportCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	return &urfave.Command{
		Name: "export", Usage: "write the policy of a run as ONNX, as Go source, or as safetensors", ArgsUsage: "RUN",
		Description: "RUN is the folder of a training. The files compute the greedy action from a raw observation; docs/export.md\n" +
			"describes how to use them.",
		Flags: []urfave.Flag{
			&urfave.PathFlag{Name: "onnx", Usage: "`FILE` to write in the ONNX format"},
			&urfave.PathFlag{Name: "go", Usage: "`FILE` to write as Go source without dependencies"},
			flags.Text("", "package", "", "`NAME` of the package of the Go source (default: that of its folder)"),
			&urfave.PathFlag{Name: "safetensors", Usage: "`FILE` to write in the safetensors format"},
			forceFlag(), weightsFlag(),
		},
		Action: c.export,
	}
}

func (c command) export(ctx *urfave.Context) (err error) {
	if ctx.Path("onnx")+ctx.Path("go")+ctx.Path("safetensors") == "" {
		return call.Usage("ditask export: no output is given: give --onnx FILE, --go FILE or --safetensors FILE")
	}
	var faults []error
	for _, form := range []string{"onnx", "go", "safetensors"} {
		if path := ctx.Path(form); path != "" {
			faults = append(faults, free(ctx, form, path))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return call.UsageError{Err: err}
	}
	t, _, err := c.load(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	meta := export.Meta{Algorithm: t.Config.Algorithm().Name, Env: t.Config.Env()}
	for _, f := range []struct {
		path  string
		write func(w io.Writer) error
	}{
		{ctx.Path("onnx"), func(w io.Writer) error { return export.ONNX(w, t.Policy, meta) }},
		{ctx.Path("go"), func(w io.Writer) error {
			return export.Go(w, t.Policy, export.GoConfig{Package: packageName(ctx), Meta: meta})
		}},
		{ctx.Path("safetensors"), func(w io.Writer) error { return export.Safetensors(w, t.Policy, meta) }},
	} {
		if f.path == "" {
			continue
		}
		if err := export.WriteFile(f.path, f.write); err != nil {
			return fmt.Errorf("export %s: %w", f.path, err)
		}
		if _, err := fmt.Fprintln(c.Stdout, f.path); err != nil {
			return err
		}
	}
	return nil
}

// packageName returns the name of --package, or of the folder of the Go file.
func packageName(ctx *urfave.Context) string {
	if name := ctx.String("package"); name != "" {
		return name
	}
	abs, err := filepath.Abs(ctx.Path("go"))
	if err != nil {
		return "policy"
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(filepath.Dir(abs))))
	if name == "" || name[0] < 'a' {
		return "policy"
	}
	return name
}
