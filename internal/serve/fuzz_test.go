package serve

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/envs"
)

// dictConfig is of an observation that is a Dict of all kinds.
func dictConfig() *Config {
	c := &Config{Action: envs.Discrete{N: 2}, Parts: []Part{
		{Name: "velocity", Kind: "Box", Shape: []int{2, 2}, To: 4},
		{Name: "gear", Kind: "Discrete", From: 4, To: 7, N: []int{3}, Start: -1, OneHot: true},
		{Name: "seats", Kind: "MultiDiscrete", Shape: []int{2}, From: 7, To: 12, N: []int{2, 3}, OneHot: true},
		{Name: "a/ü", Kind: "MultiBinary", Shape: []int{1}, From: 12, To: 13},
	}}
	c.EnsureDefaults()
	return c
}

func TestDecodeDict(t *testing.T) {
	c := dictConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	var r request
	const body = ` {"observations": [ {"gear":-1,"a/\u00fc":[1],"velocity":[[1,2.5],[-3e1,4]],"seats":[1,2]} ] ,"sample":true,"seed":7} `
	f := c.decode([]byte(body), &r)
	if f != nil {
		t.Fatal(f)
	}
	if diff := cmp.Diff([]float32{1, 2.5, -30, 4, 1, 0, 0, 0, 1, 0, 0, 1, 1},
		r.obs); diff != "" || r.rows != 1 || !r.batch || !r.sample || r.seed != 7 {
		t.Errorf("%+v\n%s", r, diff)
	}
}

func TestDecodeTupleAsAList(t *testing.T) {
	c := &Config{Action: envs.Discrete{N: 2}, Parts: []Part{{Name: "0", Kind: "Box", Shape: []int{2}, To: 2},
		{Name: "1", Kind: "Discrete", From: 2, To: 4, N: []int{2}, OneHot: true}}}
	c.EnsureDefaults()
	for _, body := range []string{`{"observation":[[1,2],1]}`, `{"observation":{"1":1,"0":[1,2]}}`} {
		var r request
		if f := c.decode([]byte(body), &r); f != nil || !cmp.Equal(r.obs, []float32{1, 2, 0, 1}) {
			t.Errorf("%s: %v %v", body, r.obs, f)
		}
	}
}

func TestDecodeFaults(t *testing.T) {
	const notFinite = "it is not finite: the policy takes finite numbers only: look where the observation is made"
	ok := `"velocity":[[1,2],[3,4]],"gear":0,"seats":[0,0],"a/ü":[0]`
	for body, want := range map[string]string{
		``:                               `the request ends at byte 0: want an object such as {"observation": ...}`,
		`[]`:                             `it is a list: want an object such as {"observation": ...}`,
		`{}`:                             `observation: it is missing: give observation, or a list of observations`,
		`{"observation":{` + ok + `}} x`: `byte 77 begins with "x": want the end of the request after its object`,
		`{"obs":1}`:                      `unknown key "obs": want observation, observations, session, sessions, reset, sample, seed or extras`,
		`{"observation":{` + ok + `},"observation":{` + ok + `}}`: `the key "observation" occurs twice`,
		`{"observation":{` + ok + `},"observations":[]}`:          `observation and observations: give one of them`,
		`{"observations":[]}`:                                     `observations: it is empty: want at least one observation`,
		`{"observation":{"gear":0}}`: `observation.velocity: this part is missing: ` +
			`the observation has the parts "velocity", "gear", "seats", "a/ü"`,
		`{"observation":{` + ok + `,"x":1}}`:     `observation: unknown key "x": want "velocity", "gear", "seats", "a/ü"`,
		`{"observation":{"gear":3}}`:             `observation.gear: 3: want a whole number from -1 to 1`,
		`{"observation":{"gear":0.5}}`:           `observation.gear: 0.5: want a whole number from -1 to 1`,
		`{"observation":{"gear":"1"}}`:           `observation.gear: it is a text: want a number`,
		`{"observation":{"gear":true}}`:          `observation.gear: it is true: want a number`,
		`{"observation":{"gear":null}}`:          `observation.gear: it is null: want a number`,
		`{"observation":{"gear":Infinity}}`:      `observation.gear: ` + notFinite,
		`{"observation":{"gear":-Infinity}}`:     `observation.gear: ` + notFinite,
		`{"observation":{"gear":01}}`:            `observation.gear: "01}" is no number of JSON`,
		`{"observation":{"gear":1.}}`:            `observation.gear: "1.}" is no number of JSON`,
		`{"observation":{"velocity":[[1e39]]}}`:  `observation.velocity[0][0]: "1e39" is greater than a float32 can be, 3.4e38`,
		`{"observation":{"velocity":[[1,NaN]]}}`: `observation.velocity[0][1]: ` + notFinite,
		`{"observation":{"velocity":[1,2,3,4]}}`: `observation.velocity[0]: it is a number: want a list of 2`,
		`{"observation":{"velocity":[[1,2]]}}`:   `observation.velocity: a list of 1, want 2: the shape is [2 2]`,
		`{"observation":{"velocity":[[1,2,3]]}}`: `` +
			`observation.velocity[0][2]: this list has more than the 2 values of its shape [2 2]`,
		`{"observation":{"velocity":[[1,[[[[`:               `observation.velocity[0][1]: it is a list: want a number`,
		`{"observation":{"a/ü":[2]}}`:                       `observation.a/ü[0]: 2: want 0 or 1`,
		`{"observation":{` + ok + `},"seed":1}`:             `seed: it has no effect without "sample": true: give both, or leave it out`,
		`{"observation":{` + ok + `},"seed":-1}`:            `seed: "-1": want a whole number from 0 on`,
		`{"observation":{` + ok + `},"sample":1}`:           `sample: it is a number: want true or false`,
		`{"observation":{` + ok + `},"sessions":["a","b"]}`: `sessions: 2 sessions of 1 observations: want one for each`,
		`{"observation":{` + ok + `},"session":""}`:         `session: a name of 0 bytes: want 1 to 128`,
		`{"session":"a","sessions":["b"]}`:                  `session and sessions: give one of them`,
		`{"observation":{` + ok + `},"session":"\q"}`:       `session: "\"\\q\"" is no text of JSON`,
	} {
		var r request
		f := dictConfig().decode([]byte(body), &r)
		if f == nil || f.Error() != want || f.status != 400 {
			t.Errorf("%s\n got %v\nwant %s", body, f, want)
		}
	}
}

// FuzzDecode compares what is accepted with encoding/json's reading.
func FuzzDecode(f *testing.F) {
	f.Add(`{"observation":[1,2.5,-3e1,4],"session":"a"}`)
	f.Add(`{"observations":[[1,2,3,4],[0,0,0,0]],"sessions":["a","\u00fcb"],"reset":true}`)
	f.Add(`{"observation":[1,NaN,[[[[`)
	f.Add(`{"observation":[0.1,1e-50,-0,1E+2],"sample":true,"seed":18446744073709551615,"extras":false}`)
	c := &Config{Action: envs.Discrete{N: 2}, MaxBatch: 8, Parts: []Part{{Kind: "Box", Shape: []int{4}, To: 4}}}
	c.EnsureDefaults()
	var r request
	f.Fuzz(func(t *testing.T, body string) {
		if fault := c.decode([]byte(body), &r); fault != nil {
			if fault.message == "" || fault.status < 400 {
				t.Errorf("%+v", fault)
			}
			return
		}
		var want struct {
			Observation  []json.Number
			Observations [][]json.Number
			Session      *string
			Sessions     []string
			Reset        bool
			Sample       bool
			Extras       bool
			Seed         uint64
		}
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatalf("%q was accepted: %v", body, err)
		}
		rows := want.Observations
		if !r.batch {
			rows = [][]json.Number{want.Observation}
		}
		var obs []float32
		for _, row := range rows {
			for _, n := range row {
				v, err := strconv.ParseFloat(n.String(), 32)
				if err != nil || math.IsInf(v, 0) {
					t.Fatalf("%q: %v", n, err)
				}
				obs = append(obs, float32(v))
			}
		}
		if want.Session != nil {
			want.Sessions = []string{*want.Session}
		}
		if !cmp.Equal(obs, r.obs) || r.rows != len(rows) || r.seed != want.Seed || r.sample != want.Sample || r.reset != want.Reset ||
			r.extras != want.Extras || len(r.sessions) != len(want.Sessions) {
			t.Errorf("%q: %+v, want %+v", body, r, want)
		}
	})
}

// BenchmarkDecode is a body of one small observation, beside encoding/json.
func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"observation": [0.0273956, -0.0061121, 0.0358597, 0.0197368]}`)
	c := &Config{Action: envs.Discrete{N: 2}, Parts: []Part{{Kind: "Box", Shape: []int{4}, To: 4}}}
	c.EnsureDefaults()
	b.Run("serve", func(b *testing.B) {
		var r request
		b.ReportAllocs()
		for b.Loop() {
			if f := c.decode(body, &r); f != nil {
				b.Fatal(f)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		var r struct{ Observation []float32 }
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(body, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
