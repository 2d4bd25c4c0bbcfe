package algorithm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ditask/ditask/policies"
)

// Schedule is a number that may change with the env steps of the run. As text it is one of
//
//	0.001                        always the same
//	linear(1, 0.05)              from 1 to 0.05 over the whole run
//	linear(1, 0.05, 50%)         over the first half of it
//	linear(1, 0.05, 10000)       over 10,000 env steps
//	exponential(0.95, 0.1, 10k)  nearer to 0.1 by 1-1/e every 10,000
//	cosine(1, 0.05)              as linear, along half a cosine
//	piecewise(0: 1, 25k: 0.1)    straight lines between points, constant after the last
type Schedule struct {
	text  string
	first float64
	make  func(total int) policies.Schedule
}

// String returns the text.
func (s *Schedule) String() string { return s.text }

// First returns the value at the beginning.
func (s *Schedule) First() float64 { return s.first }

// Constant reports whether the value never changes.
func (s *Schedule) Constant() bool {
	_, err := strconv.ParseFloat(s.text, 64)
	return err == nil
}

// Over returns the schedule of a run of that many steps.
func (s *Schedule) Over(total int) policies.Schedule { return s.make(total) }

// Schedule declares a number that may change with the env steps. The bounds hold for each value in it.
func (p *Params) Schedule(name, def, unit, about, source string, bounds ...Bound) *Schedule {
	v := new(Schedule)
	p.add(&Param{
		Name: name, Unit: unit, About: about, Source: source, Default: def, Bounds: describe(bounds),
		set: func(text string) error {
			s, err := ParseSchedule(text, bounds...)
			if err != nil {
				return err
			}
			*v = s
			return nil
		},
		text: v.String,
	})
	return v
}

// ParseSchedule reads a schedule. The bounds hold for each value in it.
func ParseSchedule(text string, bounds ...Bound) (Schedule, error) {
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		if err := within(x, bounds); err != nil {
			return Schedule{}, err
		}
		return Schedule{text: number(x), first: x, make: func(int) policies.Schedule { return policies.Constant(x) }}, nil
	}
	name, inner, ok := strings.Cut(text, "(")
	inner, closed := strings.CutSuffix(strings.TrimSpace(inner), ")")
	if !ok || !closed {
		return Schedule{}, fmt.Errorf("%q: %w", cut(text), errSchedule)
	}
	args := strings.Split(inner, ",")
	for i := range args {
		args[i] = strings.TrimSpace(args[i])
	}
	var s Schedule
	var err error
	if name = strings.TrimSpace(name); name == "piecewise" {
		s, err = piecewise(args, bounds)
	} else {
		s, err = between(name, args, bounds)
	}
	if err != nil {
		return s, fmt.Errorf("%q: %w", cut(text), err)
	}
	s.text = name + "(" + strings.Join(args, ", ") + ")"
	return s, nil
}

// between returns the schedules from a first to a last value.
func between(name string, args []string, bounds []Bound) (Schedule, error) {
	if len(args) < 2 || len(args) > 3 || name == "exponential" && len(args) != 3 {
		return Schedule{}, errSchedule
	}
	first, err1 := value(args[0], bounds)
	last, err2 := value(args[1], bounds)
	if err := firstOf(err1, err2); err != nil {
		return Schedule{}, err
	}
	over := steps{part: 1}
	if len(args) == 3 {
		var err error
		if over, err = parseSteps(args[2]); err != nil {
			return Schedule{}, err
		}
		if over.of(math.MaxInt32) < 1 {
			return Schedule{}, fmt.Errorf("%s: want more than 0 steps", args[2])
		}
	}
	kinds := map[string]func(first, last float64, over int) policies.Schedule{
		"linear": policies.Linear, "exponential": policies.Exponential, "cosine": policies.Cosine,
	}
	kind, ok := kinds[name]
	if !ok {
		return Schedule{}, errSchedule
	}
	return Schedule{first: first, make: func(total int) policies.Schedule { return kind(first, last, max(over.of(total), 1)) }}, nil
}

// piecewise are straight lines between points.
func piecewise(args []string, bounds []Bound) (Schedule, error) {
	at, values := make([]steps, len(args)), make([]float64, len(args))
	for i, arg := range args {
		x, y, ok := strings.Cut(arg, ":")
		if !ok {
			return Schedule{}, errSchedule
		}
		var err1, err2 error
		at[i], err1 = parseSteps(strings.TrimSpace(x))
		values[i], err2 = value(strings.TrimSpace(y), bounds)
		if err := firstOf(err1, err2); err != nil {
			return Schedule{}, err
		}
		switch {
		case i == 0 && at[0] != steps{}:
			return Schedule{}, fmt.Errorf("%s: want 0 as the step of the first point", arg)
		case i > 1 && (at[i].part > 0) != (at[i-1].part > 0):
			return Schedule{}, fmt.Errorf("%s: want steps that are all numbers, or all parts of the run", arg)
		case i > 0 && at[i].of(math.MaxInt32) <= at[i-1].of(math.MaxInt32):
			return Schedule{}, fmt.Errorf("%s: want points in the order of their steps", arg)
		}
	}
	if len(at) < 2 {
		return Schedule{}, errSchedule
	}
	return Schedule{first: values[0], make: func(total int) policies.Schedule {
		points := make([]policies.Point, len(at))
		for i := range at {
			points[i] = policies.Point{Count: at[i].of(total), Value: values[i]}
			if i > 0 { // a short run may have no step between two parts of it
				points[i].Count = max(points[i].Count, points[i-1].Count+1)
			}
		}
		s, err := policies.PiecewiseLinear(points, values[len(values)-1])
		if err != nil {
			panic(err.Error()) // what it refuses was refused above
		}
		return s
	}}, nil
}

// steps are a count, or a part of the run.
type steps struct {
	count int
	part  float64
}

func parseSteps(text string) (steps, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		x, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(x >= 0 && x <= 100) {
			return steps{}, fmt.Errorf("%q: want 0%% to 100%%", cut(text))
		}
		return steps{part: x / 100}, nil
	}
	n, err := ParseInt(text)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d steps: want at least 0", n)
	}
	return steps{count: n}, err
}

func (s steps) of(total int) int { return s.count + int(s.part*float64(total)) }

func value(text string, bounds []Bound) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number", cut(text))
	}
	return x, within(x, bounds)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Count is a number of steps, or a part of the run such as 5%.
type Count struct {
	text  string
	steps steps
}

// Of returns the number in a run of that many steps, at least 1 unless the count is 0.
func (c *Count) Of(total int) int {
	if c.steps == (steps{}) {
		return 0
	}
	return max(c.steps.of(total), 1)
}

// Count declares a number of steps, or a part of the run.
func (p *Params) Count(name, def, unit, about, source string) *Count {
	v := new(Count)
	p.add(&Param{
		Name: name, Unit: unit, About: about, Source: source, Default: def,
		set: func(text string) error {
			s, err := parseSteps(text)
			if err != nil {
				return err
			}
			*v = Count{text, s}
			return nil
		},
		text: func() string { return v.text },
	})
	return v
}
