package train

import (
	"github.com/ditask/ditask/policies/a2c"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/appo"
	"github.com/ditask/ditask/policies/bc"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/cql"
	"github.com/ditask/ditask/policies/ddpg"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/qlearning"
	"github.com/ditask/ditask/policies/qrdqn"
	"github.com/ditask/ditask/policies/rainbow"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/policies/td3"
)

// Algorithms returns the algorithms of this module.
func Algorithms() []algorithm.Algorithm {
	return []algorithm.Algorithm{
		ppo.Algorithm(),
		dqn.Algorithm(),
		sac.Algorithm(),
		td3.Algorithm(),
		ddpg.Algorithm(),
		a2c.Algorithm(),
		impala.Algorithm(),
		appo.Algorithm(),
		c51.Algorithm(),
		qrdqn.Algorithm(),
		rainbow.Algorithm(),
		qlearning.Algorithm(),
		bc.Algorithm(),
		cql.Algorithm(),
	}
}
