package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/ditask/ditask/envs"
)

// Config describes a server. Parts and Action are needed; zero of all others works.
type Config struct {
	Parts  []Part     // of an observation, in order
	Action envs.Space // of the environment
	// Clip brings actions of a box to its bounds, as the environment's wrapper does in training.
	Clip      bool
	Algorithm string // for GET /v1/policy, as are Env, Run and Weights
	Env       string
	Run       string
	Weights   string

	Token string // that a caller over TCP must have; empty: none

	MaxBody     int           // bytes of a request's body; 0 means 4 MiB
	MaxBatch    int           // observations of a request, and of a call of the policy; 0 means 1024
	MaxInFlight int           // requests that act or wait for it; 0 means 256
	MaxConns    int           // connections; 0 means 1024
	MaxSessions int           // sessions of a policy with memory; 0 means 10,000
	SessionIdle time.Duration // after which a session ends; 0 means 10 min
	Timeout     time.Duration // to read a request, to wait for the policy, and to write the answer; 0 means 10 s
	Grace       time.Duration // for requests in progress when the server ends; 0 means 10 s

	Log *slog.Logger     // nil: none
	Now func() time.Time // nil: time.Now
}

// Part is a part of an observation: of one that is a Dict or a Tuple there are several.
type Part struct {
	Name string // empty: the observation is this part alone, without a name
	Kind string // Gymnasium's name of the space: Box, Discrete, MultiDiscrete or MultiBinary
	// Shape is that of the nested lists in which the values stand; nil: a number without a list.
	Shape     []int
	From, To  int       // its values of the policy's observation
	N         []int     // of discrete values, how many numbers each can have; nil: any value
	Start     int       // the first number of a Discrete
	OneHot    bool      // the policy sees each number as a row of zeros with a single 1
	Low, High []float32 // bounds of a Box, one for each value; nil: not known. They are shown and not checked.
}

// values returns the number of values that the part has in a request.
func (p *Part) values() int {
	n := 1
	for _, k := range p.Shape {
		n *= k
	}
	return n
}

// maxValues bounds the numbers of the observations of one call of the policy, unless it is one observation: 16 MiB.
const maxValues = 1 << 22

// EnsureDefaults sets zero fields to their defaults.
func (c *Config) EnsureDefaults() {
	for _, f := range []struct {
		field *int
		def   int
	}{{&c.MaxBody, 4 << 20}, {&c.MaxBatch, 1024}, {&c.MaxInFlight, 256}, {&c.MaxConns, 1024}, {&c.MaxSessions, 10_000}} {
		if *f.field == 0 {
			*f.field = f.def
		}
	}
	for _, f := range []struct {
		field *time.Duration
		def   time.Duration
	}{{&c.SessionIdle, 10 * time.Minute}, {&c.Timeout, 10 * time.Second}, {&c.Grace, 10 * time.Second}} {
		if *f.field == 0 {
			*f.field = f.def
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Validate returns all that is wrong with a config.
func (c *Config) Validate() error {
	var faults []error
	for _, f := range []struct {
		name  string
		value int
	}{
		{"MaxBody", c.MaxBody}, {"MaxBatch", c.MaxBatch}, {"MaxInFlight", c.MaxInFlight}, {"MaxConns", c.MaxConns},
		{"MaxSessions", c.MaxSessions},
	} {
		if f.value < 1 {
			faults = append(faults, fmt.Errorf("%s %d: want at least 1", f.name, f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"SessionIdle", c.SessionIdle}, {"Timeout", c.Timeout}, {"Grace", c.Grace}} {
		if f.value <= 0 {
			faults = append(faults, fmt.Errorf("%s %v: want more than 0", f.name, f.value))
		}
	}
	if c.Action == nil {
		faults = append(faults, errors.New("actions: want their space in Action"))
	}
	return errors.Join(append(faults, c.checkParts())...)
}

// checkParts reports the faults of the parts: they follow each other, and have the values that their shape says.
func (c *Config) checkParts() error {
	if len(c.Parts) == 0 {
		return errors.New("parts: want at least one")
	}
	var faults []error
	at, names := 0, map[string]bool{}
	for i := range c.Parts {
		p := &c.Parts[i]
		width := p.values()
		if p.N != nil && len(p.N) != width {
			faults = append(faults, fmt.Errorf("parts[%d]: N is of %d values, and the shape of %d", i, len(p.N), width))
		}
		if p.OneHot {
			width = 0
			for _, n := range p.N {
				width += n
			}
		}
		if p.From != at || p.To-p.From != width || width < 1 {
			faults = append(faults, fmt.Errorf("parts[%d]: from %d to %d, want from %d to %d", i, p.From, p.To, at, at+width))
		}
		if names[p.Name] || p.Name == "" && len(c.Parts) > 1 {
			faults = append(faults, fmt.Errorf("parts[%d]: the name %q: want a unique name", i, p.Name))
		}
		at, names[p.Name] = p.To, true
	}
	return errors.Join(faults...)
}

// dim returns the number of values of the policy's observation.
func (c *Config) dim() int { return c.Parts[len(c.Parts)-1].To }

// tuple reports whether the parts are those of a Tuple, whose names are their numbers.
func (c *Config) tuple() bool {
	for i := range c.Parts {
		if c.Parts[i].Name != strconv.Itoa(i) {
			return false
		}
	}
	return true
}
