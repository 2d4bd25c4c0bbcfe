package envs

import "fmt"

// cell is one environment of a vector, whatever the type of its actions.
type cell interface {
	name() string
	reset(seed ...uint64) ([]float32, Info, error)
	// step takes an action of the space, flat.
	step(action []float32) (Step, error)
	snapshotter() (Snapshotter, error)
	renderer() (Renderer, bool)
	spaces() (obs, action Space)
	// clips reports whether actions outside of a box are the environment's affair.
	clips() bool
}

// newCell returns the cell of env. It panics if A does not fit its space.
func newCell[A Action](env Env[A]) cell {
	space := env.ActionSpace()
	switch e := any(env).(type) {
	case Env[int]:
		if _, ok := space.(Discrete); ok {
			return &intCell{cellOf[int]{e}}
		}
	case Env[[]int]:
		switch space.(type) {
		case MultiDiscrete, MultiBinary:
			return &multiCell{cellOf[[]int]{e}, make([]int, space.Dim())}
		}
	case Env[[]float32]:
		return &boxCell{cellOf[[]float32]{e}}
	}
	var a A
	panic(fmt.Sprintf("envs: %s has actions of type %T for %v", env.Name(), a, space))
}

type cellOf[A Action] struct{ env Env[A] }

func (c *cellOf[A]) name() string { return c.env.Name() }

func (c *cellOf[A]) reset(seed ...uint64) ([]float32, Info, error) { return c.env.Reset(seed...) }

func (c *cellOf[A]) snapshotter() (Snapshotter, error) { return snapshotOf(c.env) }

func (c *cellOf[A]) renderer() (Renderer, bool) { return As[Renderer](c.env) }

func (c *cellOf[A]) spaces() (obs, action Space) {
	return c.env.ObservationSpace(), c.env.ActionSpace()
}

func (c *cellOf[A]) clips() bool {
	_, ok := As[ActionClipper](c.env)
	return ok
}

type intCell struct{ cellOf[int] }

func (c *intCell) step(action []float32) (Step, error) { return c.env.Step(int(action[0])) }

type boxCell struct{ cellOf[[]float32] }

func (c *boxCell) step(action []float32) (Step, error) { return c.env.Step(action) }

type multiCell struct {
	cellOf[[]int]
	action []int
}

func (c *multiCell) step(action []float32) (Step, error) {
	for i, v := range action {
		c.action[i] = int(v)
	}
	return c.env.Step(c.action)
}
