package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a config file.
const maxFileBytes = 1 << 20

// The keys of a config file that are no parameters.
const (
	keyAlgo    = "algo"
	keyPreset  = "preset"
	keyProgram = "program" // the program that wrote the file, for human readers
)

// File is a config file: a flat mapping of keys to values, in YAML. Of JSON it takes the same.
type File struct {
	Name         string
	Algo, Preset string // empty: the file has none
	settings     []setting
}

type setting struct {
	key, value string
	line       int
}

// ReadFile reads a config file. Its keys are checked when a [Config] takes it. Errors name file and line.
func ReadFile(name string, r io.Reader) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s: more than %d bytes: it is no config file", name, maxFileBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{Name: name}
	if len(doc.Content) == 0 {
		return f, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: want keys and values, such as \"steps: 100000\"", name, top.Line)
	}
	var faults []error
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, node := top.Content[i], top.Content[i+1]
		value, err := scalar(node)
		switch before, twice := seen[key.Value]; {
		case err != nil:
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", name, key.Line, cut(key.Value), err))
		case twice:
			faults = append(faults, fmt.Errorf("%s:%d: %s is set in line %d already", name, key.Line, cut(key.Value), before))
		case key.Value == keyAlgo:
			f.Algo = value
		case key.Value == keyPreset:
			f.Preset = value
		case key.Value != keyProgram:
			f.settings = append(f.settings, setting{key.Value, value, key.Line})
		}
		seen[key.Value] = key.Line
	}
	return f, errors.Join(faults...)
}

// scalar returns a value as text: of a list its elements between commas, of a list of pairs the points of a schedule.
func scalar(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		pairs := len(n.Content) > 0
		for i, e := range n.Content {
			pairs = pairs && e.Kind == yaml.SequenceNode && len(e.Content) == 2
			if e.Kind == yaml.ScalarNode {
				parts[i] = e.Value
			} else if !pairs {
				return "", errors.New("want a value, or a list of values")
			}
		}
		if !pairs {
			return "[" + strings.Join(parts, ", ") + "]", nil
		}
		for i, e := range n.Content {
			parts[i] = e.Content[0].Value + ": " + e.Content[1].Value
		}
		return "piecewise(" + strings.Join(parts, ", ") + ")", nil
	case yaml.MappingNode: // such as env_args
		var v map[string]any
		if err := n.Decode(&v); err != nil {
			return "", err
		}
		text, err := json.Marshal(v)
		return string(text), err
	}
	return "", errors.New("want a value")
}

// Apply takes the settings of a file over. It reports every fault at once.
func (c *Config) Apply(f *File) error {
	var faults []error
	if f.Algo != "" && f.Algo != c.algorithm.Name {
		faults = append(faults, fmt.Errorf("%s: algo: it is a config of %s, not of %s", f.Name, cut(f.Algo), c.algorithm.Name))
	}
	for _, s := range f.settings {
		if err := c.Set(s.key, s.value, fmt.Sprintf("%s:%d", f.Name, s.line)); err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", f.Name, s.line, err))
		}
	}
	return errors.Join(faults...)
}

// WriteYAML writes the whole config as a file that [ReadFile] reads, with the origin of each value. program is
// the name and version of the writer, such as "ditask v1.2.0".
func (c *Config) WriteYAML(w io.Writer, program string) error {
	var b strings.Builder
	put := func(key, value, comment string) {
		line := key + ": " + quoted(value)
		if comment != "" {
			line = fmt.Sprintf("%-48s # %s", line, comment)
		}
		b.WriteString(line + "\n")
	}
	put(keyProgram, program, "")
	put(keyAlgo, c.algorithm.Name, "")
	own := false
	for _, k := range c.Keys() {
		if k.Own && !own {
			own = true
			b.WriteString("\n# hyperparameters of " + c.algorithm.Name + "\n")
		}
		put(k.Name, k.String(), strings.ReplaceAll(k.Origin, "\n", " "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quoted returns a value as YAML, in quotes where it would be read as something else.
func quoted(value string) string {
	if strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]") && !strings.ContainsAny(value, "{}\"'#") {
		return value
	}
	var back struct{ V yaml.Node }
	err := yaml.Unmarshal([]byte("v: "+value), &back)
	if err == nil && back.V.Kind == yaml.ScalarNode && back.V.Value == value && value != "" && !strings.Contains(value, "#") {
		return value
	}
	return strconv.Quote(value)
}

// jsonObject checks the text of a JSON object, or nothing.
func jsonObject(text string) error {
	var v map[string]any
	if text != "" && json.Unmarshal([]byte(text), &v) != nil {
		return fmt.Errorf("%q: want an object in JSON, such as {\"size\": 5}", cut(text))
	}
	return nil
}

// Differ lists the keys in which two configs differ, with both values.
func Differ(a, b *Config) []string {
	var out []string
	theirs := b.Keys()
	for _, k := range a.Keys() {
		i := slices.IndexFunc(theirs, func(o Key) bool { return o.Name == k.Name })
		if i >= 0 && theirs[i].String() != k.String() {
			out = append(out, fmt.Sprintf("%s: %s, %s", k.Name, k.String(), theirs[i].String()))
		}
	}
	return out
}

// Env returns the environment that the file names; empty: none.
func (f *File) Env() string {
	for _, s := range f.settings {
		if s.key == "env" {
			return s.value
		}
	}
	return ""
}
