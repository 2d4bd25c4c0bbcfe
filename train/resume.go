package train

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/ditask/ditask/middleware/rl"
)

// limits are the keys that end a run.
var limits = []string{"steps", "time", "until"}

// LiftUntil sets until to 0 if the run in the folder dir has reached it, and given names another key that ends a run, steps
// or time, but not until. Such a run then continues to the end that the other key sets; otherwise it would end before its
// first step. given are the keys that the caller has set besides those of the run's config. LiftUntil reports whether it
// has set until. A folder without best weights is no error: its run has reached no return.
func (c *Config) LiftUntil(dir string, given []string) (bool, error) {
	i := slices.IndexFunc(limits, func(k string) bool { return slices.Contains(given, k) })
	if c.Until() == 0 || i < 0 || slices.Contains(given, "until") {
		return false, nil
	}
	best, err := rl.LoadBest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	if !best.Reached || best.Mean < c.Until() {
		return false, nil
	}
	origin := fmt.Sprintf("%s is given, and the run had reached %s", limits[i], c.run.Lookup("until").String())
	return true, c.Set("until", "0", origin)
}

// more returns advice for continuing a run that has reached its end.
func (p *prepared) more(c *rl.Online) string {
	if best := c.Best; p.c.Until() != 0 && best != nil && best.Reached && best.Mean >= p.c.Until() {
		return fmt.Sprintf("resume it with --until above %.4g, or with --steps or --time to continue without --until", best.Mean)
	}
	done := c.EnvSteps
	if p.c.algorithm.Offline {
		done = c.Updates
	}
	return fmt.Sprintf("resume it with --steps of more than %d", done)
}
