package envs

// outcome is one way in which an action can go.
type outcome struct {
	upTo       float64 // the sum of the probabilities up to this one
	next       int
	reward     float64
	terminated bool
}

// table holds the outcomes of every action in every state. Environments with
// the same options can share one: it is never written to.
type table struct {
	states, actions int
	outcomes        [][]outcome // of action a in state s at s*actions+a
	start           []float64   // the sums of the probabilities of the first states
}

func newTable(states, actions int) *table {
	return &table{states: states, actions: actions, outcomes: make([][]outcome, states*actions), start: make([]float64, states)}
}

// add adds an outcome with its probability.
func (t *table) add(state, action int, probability float64, o outcome) {
	row := &t.outcomes[state*t.actions+action]
	if n := len(*row); n > 0 {
		probability += (*row)[n-1].upTo
	}
	o.upTo = probability
	*row = append(*row, o)
}

// begin fills in the first states: as likely as their weights.
func (t *table) begin(weights []float64) {
	total, sum := 0.0, 0.0
	for _, w := range weights {
		total += w
	}
	for s, w := range weights {
		sum += w / total
		t.start[s] = sum
	}
}

// tabular is an environment whose states, actions and outcomes are a table.
// Every reset and every step draws one number, even if there is no choice, as
// Gymnasium's do.
type tabular struct {
	core
	*table
	state, last int // last action, -1 before the first
	obs         [1]float32
}

func (t *tabular) ObservationSpace() Space { return Discrete{N: t.states} }

func (t *tabular) ActionSpace() Space { return Discrete{N: t.actions} }

func (t *tabular) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := t.core.begin(seed); err != nil {
		return nil, Info{}, err
	}
	x := t.rng.Float64()
	t.state = 0
	for s, upTo := range t.start {
		if upTo > x {
			t.state = s
			break
		}
	}
	t.last = -1
	return t.observe(), Info{}, nil
}

func (t *tabular) Step(action int) (Step, error) {
	if err := t.ready(); err != nil {
		return Step{}, err
	}
	if action < 0 || action >= t.actions {
		return Step{}, actionError(t.name, action, t.ActionSpace())
	}
	row := t.outcomes[t.state*t.actions+action]
	x, o := t.rng.Float64(), row[0] // also where rounding leaves the sum below x
	for _, candidate := range row {
		if candidate.upTo > x {
			o = candidate
			break
		}
	}
	t.state, t.last, t.over = o.next, action, o.terminated
	return Step{Obs: t.observe(), Reward: o.reward, Terminated: o.terminated}, nil
}

func (t *tabular) observe() []float32 {
	t.obs[0] = float32(t.state)
	return t.obs[:]
}

func (t *tabular) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendWords(t.appendCore(dst), uint64(t.state), uint64(t.last)), nil
}

func (t *tabular) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := t.restoreInts(src, &t.state, &t.last)
	if err == nil && (t.state < 0 || t.state >= t.states || t.last < -1 || t.last >= t.actions) {
		t.started = false
		return nil, badSnapshot(t.name)
	}
	return rest, err
}

// grid is a rectangle of numbered cells.
type grid struct{ rows, cols int }

// moved returns the cell next to a cell, or the cell itself at the edge.
func (g grid) moved(cell, down, right int) int {
	row := min(max(cell/g.cols+down, 0), g.rows-1)
	col := min(max(cell%g.cols+right, 0), g.cols-1)
	return row*g.cols + col
}
