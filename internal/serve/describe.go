package serve

import (
	"encoding/json"
	"math"
	"net/http"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// description is the answer to GET /v1/policy.
type description struct {
	Algorithm    string     `json:"algorithm"`
	Env          string     `json:"env"`
	Run          string     `json:"run"`
	Weights      string     `json:"weights"`
	Version      uint64     `json:"version"`
	Observation  []partText `json:"observation"`
	Action       spaceText  `json:"action"`
	Memory       bool       `json:"memory"`
	Extras       []string   `json:"extras"`
	MaxBatch     int        `json:"max_batch"`
	MaxBodyBytes int        `json:"max_body_bytes"`
}

// partText is a part of an observation.
type partText struct {
	Name string `json:"name,omitempty"`
	spaceText
}

// spaceText is a space.
type spaceText struct {
	Kind    string     `json:"kind"`
	Shape   []int      `json:"shape"` // of the nested lists; empty: a number
	N       []int      `json:"n,omitempty"`
	Start   int        `json:"start,omitempty"`
	Low     []*float32 `json:"low,omitempty"` // null: none
	High    []*float32 `json:"high,omitempty"`
	Clipped bool       `json:"clipped,omitempty"`
	Meaning string     `json:"meaning,omitempty"`
}

// describe answers GET /v1/policy.
func (s *Server) describe(w http.ResponseWriter) {
	c := &s.cfg
	d := description{
		Algorithm: c.Algorithm, Env: c.Env, Run: c.Run, Weights: c.Weights, Version: s.Version(), Action: actionText(c.Action, c.Clip),
		Memory: s.sessions.size > 0, Extras: []string{}, MaxBatch: c.maxRows(), MaxBodyBytes: c.MaxBody,
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		t := spaceText{Kind: p.Kind, Shape: p.Shape, N: p.N, Start: p.Start, Low: bounds(p.Low), High: bounds(p.High)}
		if t.Shape == nil {
			t.Shape = []int{}
		}
		d.Observation = append(d.Observation, partText{p.Name, t})
	}
	spec := (*s.actor.policy.Load()).Spec()
	for _, col := range spec.Extra {
		if shown(col.Name) {
			d.Extras = append(d.Extras, col.Name)
		}
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		s.refuse(w, &fault{http.StatusInternalServerError, codeFailed, "", "the description has no form in JSON"})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // the caller has gone
}

// shown reports whether an answer has the extra column: a state is the session's.
func shown(column string) bool { return column != policies.State && column != policies.Obs }

// actionText describes the actions.
func actionText(space envs.Space, clip bool) spaceText {
	t := spaceText{Shape: []int{space.Dim()}}
	switch a := space.(type) {
	case envs.Discrete:
		t.Kind, t.Shape, t.N, t.Start = "Discrete", []int{}, []int{a.N}, a.Start
		t.Meaning = "the number of the action, as the environment's step takes it"
	case envs.MultiDiscrete:
		t.Kind, t.N, t.Meaning = "MultiDiscrete", a.N, "one number for each choice, as the environment's step takes them"
	case envs.MultiBinary:
		t.Kind, t.Meaning = "MultiBinary", "0 or 1 for each switch"
	case envs.Box:
		t.Kind, t.Low, t.High, t.Clipped = "Box", bounds(a.Low), bounds(a.High), clip
		if len(a.Shape) > 1 {
			t.Shape = a.Shape
		}
		t.Meaning = "the values that the environment's step takes"
	}
	return t
}

// bounds are bounds in JSON, which has no infinity.
func bounds(v []float32) []*float32 {
	out := make([]*float32, len(v))
	for i := range v {
		if !math.IsInf(float64(v[i]), 0) {
			out[i] = &v[i]
		}
	}
	return out
}
