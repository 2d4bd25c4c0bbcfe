package envs

import "fmt"

// TaxiSteps is the time limit of Taxi-v4.
const TaxiSteps = 200

// TaxiConfig describes a Taxi. The zero value is Taxi-v4.
type TaxiConfig struct {
	// MaxSteps is the time limit in time steps. 0 means TaxiSteps, a negative
	// number none.
	MaxSteps int
	// Rainy makes a move go to the left or to the right of where it should.
	Rainy bool
	// RainyProbability is the probability that a move in the rain goes where it
	// should; the rest is shared by both sides. 0 means 0.8.
	RainyProbability float64
	// Fickle lets the passenger choose another destination in the first move
	// after the first pickup.
	Fickle bool
	// FickleProbability is how probable that is in an episode. 0 means 0.3.
	FickleProbability float64
}

// NewTaxi returns one Taxi-v4: a taxi in a town of 5 x 5 cells with four places
// takes a passenger from one place to another. It moves south, north, east or
// west (actions 0, 1, 2, 3), picks the passenger up (4) or drops the passenger
// (5). A step costs 1, a pickup or a drop where there is none 10, and the drop at
// the destination is worth 20 and ends the episode. It is truncated after
// [TaxiSteps].
//
// The observation is ((row*5 + column)*5 + passenger)*4 + destination, where
// places are numbered from 0 and a passenger in the taxi is 4. It is an
// [ActionMasker]. It panics if a probability is not in [0, 1].
//
// The rules without options equal Gymnasium's step by step. Rainy and Fickle
// follow the description of Taxi-v4 (left and right of the direction of motion;
// each outcome is blocked by a wall by itself); the order in which they draw
// their numbers was not compared with Gymnasium.
//
// Source: T. G. Dietterich, "Hierarchical Reinforcement Learning with the MAXQ
// Value Function Decomposition" (2000), with the map of Gymnasium's Taxi-v4.
func NewTaxi(cfg TaxiConfig) Env[int] {
	if cfg.RainyProbability == 0 {
		cfg.RainyProbability = 0.8
	}
	if cfg.FickleProbability == 0 {
		cfg.FickleProbability = 0.3
	}
	for _, p := range []float64{cfg.RainyProbability, cfg.FickleProbability} {
		if !(p >= 0 && p <= 1) {
			panic(fmt.Sprintf("envs: a taxi with a probability of %v", p))
		}
	}
	return limited[int](&taxi{tabular: tabular{core: core{name: "Taxi-v4"}, table: taxiTable(cfg)}, cfg: cfg}, cfg.MaxSteps, TaxiSteps)
}

type taxi struct {
	tabular
	cfg    TaxiConfig
	fickle int // 1 if the passenger will change the destination in this episode
}

// taxiState is a decoded state.
type taxiState struct{ row, col, passenger, destination int }

func (s taxiState) encode() int {
	return ((s.row*5+s.col)*5+s.passenger)*4 + s.destination
}

func decodeTaxi(state int) taxiState {
	return taxiState{state / 100, state / 20 % 5, state / 4 % 5, state % 4}
}

// place returns the number of the place where the taxi is, or -1.
func (s taxiState) place() int {
	for i, p := range taxiPlaces() {
		if p == [2]int{s.row, s.col} {
			return i
		}
	}
	return -1
}

func taxiPlaces() [4][2]int { return [4][2]int{{0, 0}, {0, 4}, {4, 0}, {4, 3}} }

// The moves to the south, north, east and west.
func taxiMove(a int) (down, right int) {
	return [4]int{1, -1, 0, 0}[a], [4]int{0, 0, 1, -1}[a]
}

// wallEast reports whether a wall is to the east of a cell.
func wallEast(row, col int) bool {
	switch col {
	case 0, 2:
		return row >= 3
	case 1:
		return row <= 1
	}
	return col == 4
}

// moved returns the state after a move, which a wall may prevent.
func (s taxiState) moved(down, right int) taxiState {
	if right == 1 && wallEast(s.row, s.col) || right == -1 && (s.col == 0 || wallEast(s.row, s.col-1)) {
		return s
	}
	s.row, s.col = min(max(s.row+down, 0), 4), s.col+right
	return s
}

func taxiTable(cfg TaxiConfig) *table {
	t := newTable(500, 6)
	weights := make([]float64, t.states)
	for i := range t.states {
		s := decodeTaxi(i)
		if s.passenger < 4 && s.passenger != s.destination {
			weights[i] = 1
		}
		for a := range 4 {
			down, right := taxiMove(a)
			ahead := outcome{next: s.moved(down, right).encode(), reward: -1}
			if !cfg.Rainy {
				t.add(i, a, 1, ahead)
				continue
			}
			side := (1 - cfg.RainyProbability) / 2
			t.add(i, a, cfg.RainyProbability, ahead)
			t.add(i, a, side, outcome{next: s.moved(-right, down).encode(), reward: -1}) // left of the motion
			t.add(i, a, side, outcome{next: s.moved(right, -down).encode(), reward: -1})
		}
		t.add(i, 4, 1, s.pickUp())
		t.add(i, 5, 1, s.drop())
	}
	t.begin(weights)
	return t
}

func (s taxiState) pickUp() outcome {
	if s.passenger == 4 || s.place() != s.passenger {
		return outcome{next: s.encode(), reward: -10}
	}
	s.passenger = 4
	return outcome{next: s.encode(), reward: -1}
}

func (s taxiState) drop() outcome {
	place := s.place()
	if s.passenger != 4 || place < 0 {
		return outcome{next: s.encode(), reward: -10}
	}
	s.passenger = place
	if place == s.destination {
		return outcome{next: s.encode(), reward: 20, terminated: true}
	}
	return outcome{next: s.encode(), reward: -1}
}

func (t *taxi) Reset(seed ...uint64) ([]float32, Info, error) {
	obs, info, err := t.tabular.Reset(seed...)
	if t.fickle = 0; err == nil && t.cfg.Fickle && t.rng.Float64() < t.cfg.FickleProbability {
		t.fickle = 1
	}
	return obs, info, err
}

func (t *taxi) Step(action int) (Step, error) {
	before := decodeTaxi(t.state)
	s, err := t.tabular.Step(action)
	if err != nil || t.fickle == 0 || before.passenger != 4 {
		return s, err
	}
	after := decodeTaxi(t.state)
	if before.row == after.row && before.col == after.col {
		return s, nil
	}
	t.fickle = 0
	other := t.rng.Choice(3)
	if other >= before.destination {
		other++
	}
	after.destination = other
	t.state = after.encode()
	s.Obs = t.observe()
	return s, nil
}

// ActionMask implements ActionMasker: a wall or a passenger that is not there
// make an action without effect.
func (t *taxi) ActionMask(dst []bool) {
	s := decodeTaxi(t.state)
	for a := range 4 {
		down, right := taxiMove(a)
		dst[a] = s.moved(down, right) != s
	}
	dst[4] = s.passenger < 4 && s.place() == s.passenger
	dst[5] = s.passenger == 4 && s.place() >= 0
}

func (t *taxi) AppendSnapshot(dst []byte) ([]byte, error) {
	dst, err := t.tabular.AppendSnapshot(dst)
	return appendWords(dst, uint64(t.fickle)), err
}

func (t *taxi) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := t.tabular.RestoreSnapshot(src)
	if err != nil {
		return nil, err
	}
	w, rest, err := words(rest, 1)
	if err != nil {
		return nil, err
	}
	t.fickle = int(w[0] & 1)
	return rest, nil
}
