package envs

// CliffWalkingConfig describes a CliffWalking. The zero value is
// CliffWalking-v1.
type CliffWalkingConfig struct {
	// MaxSteps is the time limit in time steps. 0 or a negative number mean
	// none: Gymnasium registers no limit.
	MaxSteps int
	// Slippery makes a move go to either side as often as where it should:
	// Gymnasium's is_slippery, and CliffWalkingSlippery-v1.
	Slippery bool
}

// NewCliffWalking returns one CliffWalking-v1: go from the lower left to the
// lower right corner of 4 x 12 cells by moving up, right, down or left (actions
// 0, 1, 2, 3). A step costs 1. The cells between the corners are a cliff: a step
// on one costs 100 and leads back to the start. The goal ends the episode.
//
// The observation is the number of the cell, row by row.
//
// Source: example 6.6 of R. S. Sutton, A. G. Barto, "Reinforcement Learning: An
// Introduction" (2018), with the random numbers of Gymnasium's CliffWalking-v1.
func NewCliffWalking(cfg CliffWalkingConfig) Env[int] {
	name := "CliffWalking-v1"
	if cfg.Slippery {
		name = "CliffWalkingSlippery-v1"
	}
	return limited[int](&cliffWalking{tabular{core: core{name: name}, table: cliffTable(cfg.Slippery)}}, cfg.MaxSteps, 0)
}

type cliffWalking struct{ tabular }

const (
	cliffRows, cliffCols = 4, 12
	cliffStart           = 3 * cliffCols
	cliffGoal            = cliffRows*cliffCols - 1
)

func cliffTable(slippery bool) *table {
	g := grid{cliffRows, cliffCols}
	t := newTable(cliffRows*cliffCols, 4)
	down, right := [4]int{-1, 0, 1, 0}, [4]int{0, 1, 0, -1}
	for s := range t.states {
		for a := range 4 {
			moves := []int{a}
			if slippery {
				moves = []int{(a + 3) % 4, a, (a + 1) % 4}
			}
			for _, m := range moves {
				o := outcome{next: g.moved(s, down[m], right[m]), reward: -1}
				switch {
				case o.next == cliffGoal:
					o.terminated = true
				case o.next > cliffStart:
					o.next, o.reward = cliffStart, -100
				}
				t.add(s, a, 1/float64(len(moves)), o)
			}
		}
	}
	weights := make([]float64, t.states)
	weights[cliffStart] = 1
	t.begin(weights)
	return t
}
