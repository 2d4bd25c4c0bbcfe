package her

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
)

// Strategy determines which goals a transition is given in hindsight. The names are the paper's.
type Strategy uint8

// The strategies. The paper's fourth, random, which takes goals of all training so far, is not here.
const (
	Future  Strategy = iota // achieved by this transition or a later one of its episode
	Episode                 // achieved by any transition of its episode
	Final                   // achieved at the end of its episode
)

// String returns the paper's name of the strategy.
func (s Strategy) String() string {
	if names := [...]string{"future", "episode", "final"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Strategy(%d)", uint8(s))
}

// Config describes the relabelling. Goal must be set; every other zero value has the paper's default.
type Config struct {
	// Goal determines where the achieved and the desired goal stand in an observation, and which reward a
	// transition earns. Environments with goals implement it: see envs.As.
	Goal     envs.Goal
	Strategy Strategy // 0 means Future
	// Goals is the number of goals that each transition is given besides its own, k in the paper; 0
	// means 4, with Final 1, of which there are no more.
	Goals int
	Seed  uint64 // of the choice of goals
	// MaxRows bounds the transitions of unfinished episodes that are kept; 0 means 100,000. Beyond it,
	// the episode whose last transition is the oldest counts as ended.
	MaxRows int
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Goals == 0 {
		c.Goals = 4
		if c.Strategy == Final {
			c.Goals = 1
		}
	}
	if c.MaxRows == 0 {
		c.MaxRows = 100_000
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("her config: "+format, args...))
		}
	}
	check(c.Goal != nil, "Goal is nil, want that of the environment")
	if c.Goal != nil {
		p := c.Goal.GoalParts()
		a, d := p.Achieved, p.Desired
		check(a.From >= 0 && d.From >= 0 && a.From < a.To && a.To-a.From == d.To-d.From,
			"Goal has the achieved part %v and the desired part %v, want parts of one length", a, d)
	}
	check(c.Strategy <= Final, "Strategy is %v, want Future, Episode or Final", c.Strategy)
	check(c.Goals >= 1, "Goals is %d, want at least 1", c.Goals)
	check(c.Strategy != Final || c.Goals <= 1, "Goals is %d, want 1 with Final", c.Goals)
	check(c.MaxRows >= 1, "MaxRows is %d, want at least 1", c.MaxRows)
	return errors.Join(faults...)
}
