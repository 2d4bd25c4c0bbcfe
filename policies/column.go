package policies

import (
	"fmt"
	"slices"
)

// Kind is the type of a column's values.
type Kind uint8

// The kinds of values.
const (
	Float32 Kind = iota + 1
	Int32
	Uint8 // such as pixels
	Bool  // kept as bytes of 0 and 1
	Uint64
)

// String returns the name of the type in Go.
func (k Kind) String() string {
	if int(k) < len(kinds) && k > 0 {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Bytes returns the size of one value.
func (k Kind) Bytes() int {
	if int(k) < len(kinds) {
		return kinds[k].bytes
	}
	return 0
}

var kinds = [...]struct {
	name  string
	bytes int
}{Float32: {"float32", 4}, Int32: {"int32", 4}, Uint8: {"uint8", 1}, Bool: {"bool", 1}, Uint64: {"uint64", 8}}

// Column is a named part of each row of a [Batch].
type Column struct {
	Name  string
	Kind  Kind
	Shape []int // of one row; empty: one value
}

// Width returns the number of values in one row.
func (c Column) Width() int {
	n := 1
	for _, d := range c.Shape {
		n *= d
	}
	return n
}

// RowBytes returns the memory of one row of these columns.
func RowBytes(columns []Column) int {
	n := 0
	for _, c := range columns {
		n += c.Width() * c.Kind.Bytes()
	}
	return n
}

// The names of columns that algorithms share. A policy may add others.
const (
	Obs        = "obs"         // observation before the action
	Action     = "action"      // a discrete action is one value, its number
	Reward     = "reward"      // with n-step returns, the discounted sum of steps rewards
	NextObs    = "next_obs"    // observation after it, steps ahead; at the end of an episode its final one
	Terminated = "terminated"  // next_obs has no future
	Truncated  = "truncated"   // the episode was cut there, which changes nothing about its value
	Steps      = "steps"       // rewards in reward, 1 to 255
	Version    = "version"     // of the policy that chose the action
	LogProb    = "log_prob"    // logarithm of the probability with which the action was chosen
	Value      = "value"       // estimate of the observation's value when the action was chosen
	Bootstrap  = "bootstrap"   // value of the observation behind the row, where that is not the next row's
	Advantage  = "advantage"   // how much better the action was than the value
	Return     = "return"      // target of the value
	Weight     = "weight"      // how much a row counts in the loss
	Index      = "index"       // where a row of a sample is in its buffer
	State      = "state"       // of a recurrent policy before the step; zero where an episode begins
	ActionDist = "action_dist" // parameters of the distribution that the action was drawn from
	TDError    = "td_error"    // of a row, which the policy writes when it learns: the new priority
)

// TransitionColumns returns the columns of transitions whose observations and actions have that many
// values: obs, action, reward, next_obs, terminated, truncated, steps and version.
func TransitionColumns(obs, action int) []Column {
	return []Column{
		{Obs, Float32, []int{obs}}, {Action, Float32, []int{action}}, {Reward, Float32, nil}, {NextObs, Float32, []int{obs}},
		{Terminated, Bool, nil}, {Truncated, Bool, nil}, {Steps, Uint8, nil}, {Version, Uint64, nil},
	}
}

// same reports whether two columns have the same name, kind and shape.
func (c *Column) same(o *Column) bool {
	return c.Name == o.Name && c.Kind == o.Kind && slices.Equal(c.Shape, o.Shape)
}

// String returns the column as "obs float32 [4]".
func (c Column) String() string {
	if len(c.Shape) == 0 {
		return fmt.Sprintf("%s %v", c.Name, c.Kind)
	}
	return fmt.Sprintf("%s %v %v", c.Name, c.Kind, c.Shape)
}
