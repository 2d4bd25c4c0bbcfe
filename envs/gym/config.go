package gym

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/ditask/ditask/envs"
)

// Config describes a [Vector]. The zero value works.
type Config struct {
	// Num is the number of environments. 0 means 1.
	Num int
	// Processes is how many processes of Python step them, each an equal share. 0 means one for each
	// core that this process may use, but no more than Num.
	Processes int
	// Python is the program to run. Empty means that of the environment variable DITASK_PYTHON, or
	// python3.
	Python string
	// Kwargs are the keyword arguments of gymnasium.make, or of the function in the file. They
	// are sent as JSON.
	Kwargs map[string]any
	// Options is given to each reset as its options. Nil means None. It is sent as JSON.
	Options map[string]any
	// Autoreset is the vector's mode.
	Autoreset envs.AutoresetMode
	// StepTimeout bounds a step, or a reset, of all environments of a process together. The bound may be
	// exceeded by a sixteenth. 0 means 60 s.
	StepTimeout time.Duration
	// StartTimeout bounds the start of the processes: importing modules and making
	// environments. 0 means 2 min.
	StartTimeout time.Duration
	// Restart replaces a process whose environment failed, hung or ended it, by a new one whose
	// environments begin new episodes. Their episodes that were cut are truncated, with reward 0 and the
	// last observation that there was as the final one; Info.Values["restarted"] is the fault as
	// text. Each restart is a warning in the log. Without it a fault ends the vector, and so does the
	// third fault of a process without a step of its environments between them.
	Restart bool
	// Infos are names of numbers and truth values in the info dicts of the environments, at most 16. Those in the
	// info of an episode's last step are float64 in Info.Values of that step, with 1 for True; a name that the dict
	// has not, or has with None, is missing there too. Anything else, as a text, an array or NaN, is [ErrInfo], which
	// no restart repairs.
	Infos []string
	// RenderMode, if not empty, is given to the environment as render_mode. [Vector.Frame] needs
	// "rgb_array".
	RenderMode string
	// Logger logs restarts. Nil means slog.Default().
	Logger *slog.Logger
	// Stderr gets the output of the environments, line by line. Nil means os.Stderr.
	Stderr io.Writer
	// Env is the environment of the processes. Nil means that of this process.
	Env []string
	// Dir is the folder in which they run, and from which modules are imported too. Empty means that of this process. The path of a
	// file is relative to that of this process in any case.
	Dir string
}

// EnsureDefaults replaces zero values by the defaults.
func (c *Config) EnsureDefaults() {
	c.Num = cmp.Or(c.Num, 1)
	c.Processes = cmp.Or(c.Processes, runtime.GOMAXPROCS(0))
	if c.Num > 0 {
		c.Processes = min(c.Processes, c.Num)
	}
	c.Python = cmp.Or(c.Python, os.Getenv("DITASK_PYTHON"), "python3")
	c.StepTimeout = cmp.Or(c.StepTimeout, time.Minute)
	c.StartTimeout = cmp.Or(c.StartTimeout, 2*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
}

// maxInfos bounds the names of infos.
const maxInfos = 16

// maxNum bounds the environments of a vector.
const maxNum = 1 << 16

// Validate reports every fault of a config.
func (c *Config) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("gym config: "+format, args...))
		}
	}
	fault(c.Num < 0 || c.Num > maxNum, "Num is %d: want 1 to %d", c.Num, maxNum)
	fault(c.Processes < 0, "Processes is %d: want 1 or more", c.Processes)
	fault(c.StepTimeout < 0, "StepTimeout is %v: want more than 0", c.StepTimeout)
	fault(c.StartTimeout < 0, "StartTimeout is %v: want more than 0", c.StartTimeout)
	fault(len(c.Infos) > maxInfos, "Infos has %d names: want %d at most", len(c.Infos), maxInfos)
	for k, name := range c.Infos {
		fault(name == "" || len(name) > 64, "name %d of Infos is %q: want 1 to 64 bytes", k, name)
		fault(slices.Contains(c.Infos[:k], name), "Infos has %q twice", name)
	}
	fault(c.Autoreset > envs.Disabled, "Autoreset is %v: want NextStep, SameStep or Disabled", c.Autoreset)
	for name, m := range map[string]map[string]any{"Kwargs": c.Kwargs, "Options": c.Options} {
		_, err := json.Marshal(m)
		fault(err != nil, "%s cannot be sent as JSON: %v", name, err)
	}
	if _, twice := c.Kwargs["render_mode"]; twice && c.RenderMode != "" {
		fault(true, "render_mode is in Kwargs and RenderMode is %q: set one of them", c.RenderMode)
	}
	return errors.Join(faults...)
}
