package train

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ditask/ditask/internal/nearest"
	"go.yaml.in/yaml/v3"
)

//go:embed presets.yaml
var presetsText []byte

// Preset has an algorithm's settings for one environment, with published results of the same settings.
type Preset struct {
	Name      string    `yaml:"name"`      // algorithm/environment/source, such as "ppo/CartPole-v1/cleanrl"
	Settings  string    `yaml:"settings"`  // where the settings are from
	Published Published `yaml:"published"` // the results with them there
	Gate      Gate      `yaml:"gate"`      // the demand of a regression test of others
	// Greedy reports that the published returns are of greedy episodes after training, rather than of the last
	// episodes while training.
	Greedy bool `yaml:"greedy"`
	// Threshold is the mean return from which the task counts as solved, or that of a gate.
	Threshold float64 `yaml:"threshold"`
	// Unsolved reports that the published runs do not reach the threshold, and that ours need not.
	Unsolved bool `yaml:"unsolved"`
	// Long reports that a run takes more than ten minutes of a processor: make reproduce trains with the preset only if PRESET
	// names it.
	Long bool      `yaml:"long"`
	Set  yaml.Node `yaml:"set"` // keys and values of a config
}

// Published is a return that others have published for a preset. The zero value is none.
type Published struct {
	Mean      float64 `yaml:"mean"`      // over the runs
	Deviation float64 `yaml:"deviation"` // standard deviation over the runs; 0 if there is one
	Runs      int     `yaml:"runs"`
}

// Gate is a mean return that a regression test demands within that many env steps. The zero value is none.
type Gate struct {
	By       string  `yaml:"by"` // the project
	Mean     float64 `yaml:"mean"`
	EnvSteps int     `yaml:"env_steps"`
}

// Algorithm returns the first part of the name.
func (p *Preset) Algorithm() string { return p.part(0) }

// Env returns the second part of the name.
func (p *Preset) Env() string { return p.part(1) }

func (p *Preset) part(i int) string { return strings.SplitN(p.Name, "/", 3)[i] }

// Reported returns the published results for the preset, such as "488.7 ± 16.1 over 3 seeds" or "RLlib's gate: 450 within
// 300,000"; "" if there is nothing.
func (p *Preset) Reported() string {
	var parts []string
	if q := p.Published; q.Runs > 1 {
		parts = append(parts, fmt.Sprintf("%s ± %s over %d seeds", number(q.Mean), number(q.Deviation), q.Runs))
	} else if q.Runs == 1 {
		parts = append(parts, number(q.Mean)+", one run")
	}
	if g := p.Gate; g.EnvSteps > 0 {
		by, of, _ := strings.Cut(g.By, " ")
		steps := strconv.Itoa(g.EnvSteps)
		for i := len(steps) - 3; i > 0; i -= 3 {
			steps = steps[:i] + "," + steps[i:]
		}
		parts = append(parts, strings.TrimSpace(by+"'s gate "+of)+": "+number(g.Mean)+" within "+steps)
	}
	return strings.Join(parts, "; ")
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Presets returns the presets of this module. Of several for one algorithm and environment the first is the one that is
// chosen where none is named.
func Presets() []Preset {
	all, err := ReadPresets("presets.yaml", bytes.NewReader(presetsText))
	if err != nil {
		panic("train: " + err.Error()) // a test reads it
	}
	return all
}

// ReadPresets reads a list of presets from r, in the form of presets.yaml in the source of this package. The error
// names the file, and all presets that are incomplete or duplicated.
func ReadPresets(file string, r io.Reader) ([]Preset, error) {
	var all []Preset
	dec := yaml.NewDecoder(r)
	dec.KnownFields(true)
	if err := dec.Decode(&all); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it has no presets", file)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var faults []error
	for i := range all {
		p := &all[i]
		if err := p.check(); err != nil {
			faults = append(faults, fmt.Errorf("%s: preset %d, %q: %w", file, i+1, cut(p.Name), err))
		} else if slices.ContainsFunc(all[:i], func(q Preset) bool { return q.Name == p.Name }) {
			faults = append(faults, fmt.Errorf("%s: preset %d, %q: there is another one of this name", file, i+1, p.Name))
		}
	}
	return all, errors.Join(faults...)
}

// check reports missing and contradictory fields.
func (p *Preset) check() error {
	var faults []error
	want := func(ok bool, text string) {
		if !ok {
			faults = append(faults, errors.New(text))
		}
	}
	parts := strings.Split(p.Name, "/")
	whole := len(parts) == 3
	for _, part := range parts {
		whole = whole && plain(part)
	}
	want(whole, "name: want ALGORITHM/ENVIRONMENT/SOURCE, each of letters, digits, - and _")
	want(p.Settings != "", "settings: want where they are from")
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	want(finite(p.Threshold) && p.Threshold != 0, "threshold: want a return other than 0")
	q, g := p.Published, p.Gate
	want(finite(q.Mean) && finite(q.Deviation) && q.Deviation >= 0 && q.Runs >= 0 && (q.Runs > 0 || q == Published{}),
		"published: want a mean, a deviation of at least 0, and the number of runs")
	want(finite(g.Mean) && (g == Gate{} || g.By != "" && g.EnvSteps > 0), "gate: want by, mean and env_steps")
	want(p.Set.Kind == yaml.MappingNode, "set: want keys and values")
	return errors.Join(faults...)
}

// plain reports whether a part of a name is one of a folder too.
func plain(part string) bool {
	return part != "" && strings.Trim(part, "-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

// FindPreset returns the preset of a name.
func FindPreset(name string) (*Preset, error) { return PresetOf(Presets(), name) }

// PresetOf returns the preset of a name from a list. The error names those that there are.
func PresetOf(all []Preset, name string) (*Preset, error) {
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return nil, unknownPreset(name, all)
	}
	return &all[i], nil
}

func unknownPreset(name string, all []Preset) error {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return fmt.Errorf("unknown preset %q%s: there are %s", cut(name), nearest.Hint(name, names), strings.Join(names, ", "))
}

// Use takes the settings of a preset over, and its environment.
func (c *Config) Use(p *Preset) error {
	if p.Algorithm() != c.algorithm.Name {
		return fmt.Errorf("preset %s: it is one of %s, not of %s", p.Name, p.Algorithm(), c.algorithm.Name)
	}
	origin := fmt.Sprintf("preset %s: %s", p.Name, p.Settings)
	if err := c.Set("env", p.Env(), origin); err != nil {
		return err
	}
	for i := 0; i+1 < len(p.Set.Content); i += 2 {
		value, err := scalar(p.Set.Content[i+1])
		if err == nil {
			err = c.Set(p.Set.Content[i].Value, value, origin)
		}
		if err != nil {
			return fmt.Errorf("preset %s: %w", p.Name, err)
		}
	}
	return nil
}
