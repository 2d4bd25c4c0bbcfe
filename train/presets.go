package train

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/ditask/ditask/internal/nearest"
	"go.yaml.in/yaml/v3"
)

//go:embed presets.yaml
var presetsText []byte

// Preset is an algorithm's settings for one environment, with what others have reached with them.
type Preset struct {
	Name      string `yaml:"name"`      // algorithm/environment/source, such as "ppo/CartPole-v1/cleanrl"
	Settings  string `yaml:"settings"`  // where the settings are from
	Published string `yaml:"published"` // what was reached with them there; empty: nothing is published
	// Greedy says that the published returns are of greedy episodes after training, rather than of the last
	// episodes while training.
	Greedy bool `yaml:"greedy"`
	// Threshold is the mean return from which the task counts as solved, or that of a gate.
	Threshold float64 `yaml:"threshold"`
	// Unsolved says that the published runs do not reach the threshold, and that ours need not.
	Unsolved bool      `yaml:"unsolved"`
	Set      yaml.Node `yaml:"set"` // keys and values of a config
}

// Algorithm is the first part of the name.
func (p *Preset) Algorithm() string { return p.part(0) }

// Env is the second part of the name.
func (p *Preset) Env() string { return p.part(1) }

func (p *Preset) part(i int) string { return strings.SplitN(p.Name, "/", 3)[i] }

// Presets are those of this module. Of several for one algorithm and environment the first is the one that is
// chosen where none is named.
func Presets() []Preset {
	var all []Preset
	dec := yaml.NewDecoder(bytes.NewReader(presetsText))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil {
		panic("train: presets.yaml: " + err.Error()) // a test reads it
	}
	return all
}

// FindPresets returns the presets whose names begin with prefix, such as "ppo/CartPole-v1".
func FindPresets(prefix string) ([]Preset, error) {
	all := Presets()
	found := slices.DeleteFunc(slices.Clone(all), func(p Preset) bool { return !strings.HasPrefix(p.Name, prefix) })
	if len(found) > 0 {
		return found, nil
	}
	return nil, unknownPreset(prefix, all)
}

// FindPreset returns the preset of a name.
func FindPreset(name string) (*Preset, error) {
	all := Presets()
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
