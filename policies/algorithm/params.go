package algorithm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Param is one hyperparameter.
type Param struct {
	Name    string // such as "learning_rate": the names of Stable-Baselines3, where it has one
	Aliases []string
	Unit    string // such as "env steps"; empty: a number without one
	About   string // one line, which does not repeat the name
	Source  string // of the default
	Default string
	Bounds  string // the values that are allowed, such as "at least 0 and at most 1"; empty: any of the kind

	set  func(text string) error
	text func() string
}

// Set gives the hyperparameter a value. The error names the wanted values.
func (p *Param) Set(text string) error {
	if err := p.set(strings.TrimSpace(text)); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

// String returns the value, as Set takes it.
func (p *Param) String() string { return p.text() }

// Params are hyperparameters in the order in which they were declared. The zero value has none.
type Params struct{ list []*Param }

// All returns the hyperparameters in the order of their declaration.
func (p *Params) All() []*Param { return slices.Clone(p.list) }

// Lookup returns the hyperparameter of a name or an alias, or nil.
func (p *Params) Lookup(name string) *Param {
	for _, q := range p.list {
		if q.Name == name || slices.Contains(q.Aliases, name) {
			return q
		}
	}
	return nil
}

// Alias adds names under which the last hyperparameter is found too.
func (p *Params) Alias(names ...string) {
	last := p.list[len(p.list)-1]
	for _, name := range names {
		p.free(name)
		last.Aliases = append(last.Aliases, name)
	}
}

func (p *Params) free(name string) {
	if p.Lookup(name) != nil {
		panic(fmt.Sprintf("algorithm: hyperparameter %q is declared twice", name))
	}
}

// add declares a hyperparameter. A default that is refused is a fault of the program.
func (p *Params) add(q *Param) {
	p.free(q.Name)
	if err := q.Set(q.Default); err != nil {
		panic(fmt.Sprintf("algorithm: default of %v", err))
	}
	q.Default = q.text()
	p.list = append(p.list, q)
}

// Bound limits a number: [Above], [AtLeast], [Below] and [AtMost].
type Bound struct {
	text string
	ok   func(v float64) bool
}

// Above wants more than x.
func Above(x float64) Bound {
	return Bound{"more than " + number(x), func(v float64) bool { return v > x }}
}

// AtLeast wants x or more.
func AtLeast(x float64) Bound {
	return Bound{"at least " + number(x), func(v float64) bool { return v >= x }}
}

// Below wants less than x.
func Below(x float64) Bound {
	return Bound{"less than " + number(x), func(v float64) bool { return v < x }}
}

// AtMost wants x or less.
func AtMost(x float64) Bound {
	return Bound{"at most " + number(x), func(v float64) bool { return v <= x }}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// within returns the fault of a number.
func within(v float64, bounds []Bound) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%v is not a finite number", v)
	}
	if !slices.ContainsFunc(bounds, func(b Bound) bool { return !b.ok(v) }) {
		return nil
	}
	return fmt.Errorf("%s: want %s", number(v), describe(bounds))
}

// describe returns the text of all bounds.
func describe(bounds []Bound) string {
	texts := make([]string, len(bounds))
	for i, b := range bounds {
		texts[i] = b.text
	}
	return strings.Join(texts, " and ")
}

// Float declares a number.
func (p *Params) Float(name string, def float64, unit, about, source string, bounds ...Bound) *float64 {
	v := new(float64)
	p.add(&Param{
		Name: name, Unit: unit, About: about, Source: source, Default: number(def), Bounds: describe(bounds),
		set: func(text string) error {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return fmt.Errorf("%q: want a number", cut(text))
			}
			if err := within(x, bounds); err != nil {
				return err
			}
			*v = x
			return nil
		},
		text: func() string { return number(*v) },
	})
	return v
}

// Int declares a whole number. 1e6 and 1_000_000 are whole numbers too.
func (p *Params) Int(name string, def int, unit, about, source string, bounds ...Bound) *int {
	v := new(int)
	p.add(&Param{
		Name: name, Unit: unit, About: about, Source: source, Default: strconv.Itoa(def), Bounds: describe(bounds),
		set: func(text string) error {
			x, err := ParseInt(text)
			if err != nil {
				return err
			}
			if err := within(float64(x), bounds); err != nil {
				return err
			}
			*v = x
			return nil
		},
		text: func() string { return strconv.Itoa(*v) },
	})
	return v
}

// ParseInt reads a whole number such as 500000, 500_000, 5e5, 500k or 1M.
func ParseInt(text string) (int, error) {
	digits, factor := strings.ReplaceAll(text, "_", ""), 1.0
	switch {
	case strings.HasSuffix(digits, "k"):
		digits, factor = strings.TrimSuffix(digits, "k"), 1e3
	case strings.HasSuffix(digits, "M"):
		digits, factor = strings.TrimSuffix(digits, "M"), 1e6
	}
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || strings.ContainsAny(digits, "xXpP") {
		return 0, fmt.Errorf("%q: want a whole number", cut(text))
	}
	if x *= factor; x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("%q: want a whole number of at most 2^53", cut(text))
	}
	return int(x), nil
}

// Bool declares a switch.
func (p *Params) Bool(name string, def bool, about, source string) *bool {
	v := new(bool)
	p.add(&Param{
		Name: name, About: about, Source: source, Default: strconv.FormatBool(def), Bounds: "true or false",
		set: func(text string) error {
			x, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q: want true or false", cut(text))
			}
			*v = x
			return nil
		},
		text: func() string { return strconv.FormatBool(*v) },
	})
	return v
}

// Text declares a free text; check, if not nil, returns the fault of a value.
func (p *Params) Text(name, def, unit, about, source string, check func(text string) error) *string {
	v := new(string)
	p.add(&Param{
		Name: name, Unit: unit, About: about, Source: source, Default: def,
		set: func(text string) error {
			if check != nil {
				if err := check(text); err != nil {
					return err
				}
			}
			*v = text
			return nil
		},
		text: func() string { return *v },
	})
	return v
}

// OneOf declares a choice among words; def is one of them.
func (p *Params) OneOf(name, def string, words []string, about, source string) *string {
	v := p.Text(name, def, "", about, source, func(text string) error {
		if !slices.Contains(words, text) {
			return fmt.Errorf("%q: want %s", cut(text), strings.Join(words, ", "))
		}
		return nil
	})
	p.list[len(p.list)-1].Bounds = strings.Join(words, ", ")
	return v
}

// Ints declares a list of whole numbers of at least 1, such as the widths of hidden layers.
func (p *Params) Ints(name string, def []int, unit, about, source string) *[]int {
	v := new([]int)
	join := func(list []int) string {
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = strconv.Itoa(x)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	p.add(&Param{
		Name: name, Unit: unit, About: about, Source: source, Default: join(def), Bounds: "at least 1 each",
		set: func(text string) error {
			list := []int{}
			for word := range words(text) {
				x, err := ParseInt(word)
				if err == nil {
					err = within(float64(x), []Bound{AtLeast(1)})
				}
				if err != nil {
					return fmt.Errorf("%q: want whole numbers of at least 1, such as [64, 64]", cut(text))
				}
				list = append(list, x)
			}
			*v = list
			return nil
		},
		text: func() string { return join(*v) },
	})
	return v
}

// words yields the parts of a list, with or without brackets, between commas or blanks.
func words(text string) func(yield func(string) bool) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	return slices.Values(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }))
}

// cut shortens a text from outside for an error.
func cut(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}

var errSchedule = errors.New("want a number, linear(FIRST, LAST), exponential(FIRST, LAST, SCALE), cosine(FIRST, LAST) or " +
	"piecewise(STEP: VALUE, ...); steps may be a part of the run, such as 10%")
