package plot

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/ditask/ditask/internal/runfolder"
)

// Run is the data of one run that is drawn.
type Run struct {
	Name      string // its folder
	Algo, Env string // by which runs are grouped
	Seed      string
	Progress  *runfolder.Table
}

// Read reads the folder of a run: progress.csv, and the keys algo, env and seed of config.yaml, if it exists. Without an
// algorithm and an environment the name of the folder around it, which is that of the program, is the algorithm.
func Read(dir string) (Run, error) {
	table, err := runfolder.ReadTable(filepath.Join(dir, runfolder.Progress))
	if err != nil {
		return Run{}, err
	}
	config, err := runfolder.ReadConfig(filepath.Join(dir, runfolder.Config))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Run{}, err
	}
	r := Run{Name: dir, Algo: config["algo"], Env: config["env"], Seed: config["seed"], Progress: table}
	if r.Algo == "" && r.Env == "" {
		abs, err := filepath.Abs(dir)
		r.Algo = cmp.Or(filepath.Base(filepath.Dir(abs)), dir)
		if err != nil {
			return Run{}, err
		}
	}
	return r, nil
}
