package envs

import (
	"fmt"
	"strings"

	"github.com/ditask/ditask/envs/nprand"
)

// The time limits of FrozenLake-v1 and of FrozenLake8x8-v1.
const (
	FrozenLakeSteps    = 100
	FrozenLake8x8Steps = 200
)

// FrozenLakeConfig describes a FrozenLake. The zero value is FrozenLake-v1.
type FrozenLakeConfig struct {
	// MaxSteps is the time limit in time steps. 0 means FrozenLakeSteps, or
	// FrozenLake8x8Steps for a map of more than 16 cells; a negative number
	// means none.
	MaxSteps int
	// Map has the lake's rows, all of one length: S start, F ice, H hole, G
	// goal. Nil means the map of 4 x 4. See FrozenLake8x8 and RandomLake.
	Map []string
	// Sure makes every move go where it should: Gymnasium's
	// is_slippery=False.
	Sure bool
	// SuccessRate is the probability that a move on slippery ice goes where it
	// should; the rest is shared by the two directions beside it. 0 means 1/3.
	SuccessRate float64
	// Goal, Hole and Ice are the rewards for stepping there. If all are 0, a
	// goal is worth 1.
	Goal, Hole, Ice float64
}

// FrozenLake8x8 returns the map of FrozenLake8x8-v1.
func FrozenLake8x8() []string {
	return []string{"SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"}
}

// RandomLake returns a random map of size x size cells, each of which is frozen
// with the given probability, on which the goal can be reached: the map of
// Gymnasium's generate_random_map with the same arguments. It panics if size is
// less than 2 or frozen is not in (0, 1].
func RandomLake(size int, frozen float64, seed uint64) []string {
	if size < 2 || !(frozen > 0 && frozen <= 1) {
		panic(fmt.Sprintf("envs: random lake of %d cells with %v frozen", size, frozen))
	}
	r := nprand.New(seed)
	for {
		rows := make([]string, size)
		for i := range rows {
			row := make([]byte, size)
			for j := range row {
				row[j] = "FH"[r.WeightedChoice([]float64{frozen, 1 - frozen})]
			}
			rows[i] = string(row)
		}
		rows[0] = "S" + rows[0][1:]
		rows[size-1] = rows[size-1][:size-1] + "G"
		if passable(rows) {
			return rows
		}
	}
}

// passable reports whether a way leads from the first cell to the goal.
func passable(rows []string) bool {
	g := grid{len(rows), len(rows[0])}
	seen, todo := make([]bool, g.rows*g.cols), []int{0}
	for len(todo) > 0 {
		cell := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		letter := rows[cell/g.cols][cell%g.cols]
		if letter == 'G' {
			return true
		}
		if seen[cell] || letter == 'H' {
			continue
		}
		seen[cell] = true
		todo = append(todo, g.moved(cell, 1, 0), g.moved(cell, 0, 1), g.moved(cell, -1, 0), g.moved(cell, 0, -1))
	}
	return false
}

// NewFrozenLake returns one FrozenLake-v1: cross a frozen lake from the start
// to the goal, which is worth 1, by moving left, down, right or up (actions 0,
// 1, 2, 3). The ice is slippery: a move goes to either side as often as where it
// should. A hole ends the episode, too. It is truncated after
// [FrozenLakeSteps]. On a map of more than 16 cells its name is
// FrozenLake8x8-v1, and it is truncated after [FrozenLake8x8Steps].
//
// The observation is the number of the cell, row by row. It panics if the map
// has no start, rows of different lengths or an unknown letter, or if the
// success rate is not in [0, 1].
//
// Source: the rules of Gymnasium's FrozenLake-v1.
func NewFrozenLake(cfg FrozenLakeConfig) Env[int] {
	limit := FrozenLakeSteps
	if cfg.Map == nil {
		cfg.Map = []string{"SFFF", "FHFH", "FFFH", "HFFG"}
	}
	if cfg.SuccessRate == 0 {
		cfg.SuccessRate = 1.0 / 3.0
	}
	if cfg.Goal == 0 && cfg.Hole == 0 && cfg.Ice == 0 {
		cfg.Goal = 1
	}
	cfg.check()
	name := "FrozenLake-v1"
	if len(cfg.Map)*len(cfg.Map[0]) > 16 {
		limit, name = FrozenLake8x8Steps, "FrozenLake8x8-v1"
	}
	return limited[int](&frozenLake{tabular{core: core{name: name}, table: cfg.table()}, cfg.Map}, cfg.MaxSteps, limit)
}

type frozenLake struct {
	tabular
	rows []string
}

// check panics if the configuration makes no sense.
func (c *FrozenLakeConfig) check() {
	all := strings.Join(c.Map, "")
	if !strings.Contains(all, "S") || strings.Trim(all, "SFHG") != "" {
		panic(fmt.Sprintf("envs: a frozen lake needs a start S, and cells S, F, H and G: %q", c.Map))
	}
	for _, row := range c.Map {
		if len(row) != len(c.Map[0]) {
			panic(fmt.Sprintf("envs: a frozen lake with rows of different lengths: %q", c.Map))
		}
	}
	if !(c.SuccessRate >= 0 && c.SuccessRate <= 1) {
		panic(fmt.Sprintf("envs: a frozen lake with a success rate of %v", c.SuccessRate))
	}
}

func (c *FrozenLakeConfig) table() *table {
	g := grid{len(c.Map), len(c.Map[0])}
	letters := strings.Join(c.Map, "")
	t := newTable(len(letters), 4)
	weights := make([]float64, len(letters))
	for s := range letters {
		if letters[s] == 'S' {
			weights[s] = 1
		}
		for a := range 4 {
			switch {
			case letters[s] == 'G' || letters[s] == 'H':
				t.add(s, a, 1, outcome{next: s, terminated: true})
			case c.Sure:
				t.add(s, a, 1, c.arrive(letters, lakeMove(g, s, a)))
			default:
				side := (1 - c.SuccessRate) / 2
				t.add(s, a, side, c.arrive(letters, lakeMove(g, s, (a+3)%4)))
				t.add(s, a, c.SuccessRate, c.arrive(letters, lakeMove(g, s, a)))
				t.add(s, a, side, c.arrive(letters, lakeMove(g, s, (a+1)%4)))
			}
		}
	}
	t.begin(weights)
	return t
}

func (c *FrozenLakeConfig) arrive(letters string, cell int) outcome {
	switch letters[cell] {
	case 'G':
		return outcome{next: cell, reward: c.Goal, terminated: true}
	case 'H':
		return outcome{next: cell, reward: c.Hole, terminated: true}
	}
	return outcome{next: cell, reward: c.Ice}
}

// lakeMove returns the cell to the left (0), below, to the right, or above.
func lakeMove(g grid, cell, action int) int {
	down := [4]int{0, 1, 0, -1}
	right := [4]int{-1, 0, 1, 0}
	return g.moved(cell, down[action], right[action])
}
