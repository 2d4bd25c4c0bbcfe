package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/serve"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/ppo"
)

// answer is an answer to POST /v1/act.
type answer struct {
	Action  *int
	Actions []int
	Version uint64
	Extras  map[string]any
	Error   struct{ Code, Where, Message string }
}

// client returns a client whose connections end with the test.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// post asks, and returns the status and the answer.
func post(t testing.TB, c *http.Client, addr, body string) (int, answer) {
	t.Helper()
	resp, err := c.Post("http://"+addr+"/v1/act", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, answer{}
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, a
}

// raw sends bytes, ends its side if so, and returns the status and the answer.
func raw(t *testing.T, addr, text string) (int, answer) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, a
}

const fine = `{"observation":[0.1,0.2,0.3,0.4]}`

func TestFaultsOfRequests(t *testing.T) {
	leak.Check(t)
	s := newServer(t, serve.Config{MaxBody: 100_000, MaxBatch: 3, Timeout: time.Minute, Token: "s3cret"}, picky{ppoPolicy(t, 0)})
	addr := start(t, "tcp", s)
	const auth = "Host: h\r\nAuthorization: Bearer s3cret\r\n"
	act := func(length int, body string) string {
		return fmt.Sprintf("POST /v1/act HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", auth, length, body)
	}
	whole := func(body string) string { return act(len(body), body) }
	four := "[[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4]]"
	for name, c := range map[string]struct {
		request string
		status  int
		code    string
		says    string
	}{
		"fine":      {whole(fine), 200, "", ""},
		"nan":       {whole(`{"observation":[1,NaN,3,4]}`), 400, "invalid", "not finite"},
		"shape":     {whole(`{"observation":[1,2,3]}`), 400, "invalid", "a list of 3, want 4"},
		"type":      {whole(`{"observation":"abc"}`), 400, "invalid", "it is a text"},
		"missing":   {whole(`{"sample":true}`), 400, "invalid", "missing"},
		"unknown":   {whole(`{"observation":[1,2,3,4],"x":1}`), 400, "invalid", `unknown key \"x\"`},
		"deep":      {whole(`{"observation":` + strings.Repeat("[", 50_000)), 400, "invalid", "it is a list: want a number"},
		"overflow":  {whole(`{"observation":[1e38,0,0,0]}`), 400, "invalid", "the policy cannot act on it"},
		"session":   {whole(`{"observation":[1,2,3,4],"session":"a"}`), 400, "invalid", "no memory"},
		"batch":     {whole(`{"observations":` + four + `}`), 413, "too_large", "at most 3 observations"},
		"announced": {act(100<<20, "{"), 413, "too_large", "more than 100000 bytes"},
		"chunked": {"POST /v1/act HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n1e000\r\n" + strings.Repeat(" "+
			"", 0x1e000) + "\r\n", 413, "too_large", "more than"},
		"path":           {"GET /v2 HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found", "there is no"},
		"method":         {"GET /v1/act HTTP/1.1\r\n" + auth + "\r\n", 405, "method_not_allowed", "is for POST"},
		"no token":       {"GET /v1/policy HTTP/1.1\r\nHost: h\r\n\r\n", 401, "unauthorized", "Authorization: Bearer TOKEN"},
		"wrong token":    {"GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cre\r\n\r\n", 401, "unauthorized", "wrong"},
		"open for all":   {"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n", 200, "", ""},
		"healthy anyway": {"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n", 200, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, a := raw(t, addr, c.request)
			message, _ := json.Marshal(a.Error.Message)
			if status != c.status || a.Error.Code != c.code || !strings.Contains(string(message), c.says) {
				t.Errorf("%d %+v", status, a)
			}
			if status, a := raw(t, addr, whole(fine)); status != 200 || a.Action == nil {
				t.Errorf("afterwards: %d %+v", status, a)
			}
		})
	}
}

// TestPagesOfOtherHosts: without a token, a web page that a browser of this machine shows can neither ask nor read.
func TestPagesOfOtherHosts(t *testing.T) {
	leak.Check(t)
	open := start(t, "tcp", newServer(t, serve.Config{}, ppoPolicy(t, 0)))
	secret := start(t, "tcp", newServer(t, serve.Config{Token: "s3cret"}, ppoPolicy(t, 0)))
	for _, c := range []struct {
		addr, path, headers string
		status              int
	}{
		{open, "/v1/act", "Host: " + open, 200},
		{open, "/v1/act", "Host: localhost", 200},
		{open, "/v1/act", "Host: [::1]:8080", 200},
		{open, "/v1/act", "Host: localhost\r\nOrigin: http://localhost:3000", 200},
		{open, "/healthz", "Host: elsewhere.example", 200},
		{open, "/v1/act", "Host: elsewhere.example:8080", 403}, // whose name resolves to 127.0.0.1
		{open, "/v1/act", "Host: localhost.elsewhere.example", 403},
		{open, "/v1/act", "Host: localhost\r\nOrigin: https://elsewhere.example", 403},
		{open, "/v1/act", "Host: localhost\r\nOrigin: null", 403},
		{open, "/metrics", "Host: elsewhere.example", 403},
		{secret, "/v1/act", "Host: elsewhere.example\r\nAuthorization: Bearer s3cret", 200},
		{secret, "/v1/act", "Host: localhost\r\nOrigin: https://elsewhere.example", 401},
	} {
		method := map[bool]string{true: "POST", false: "GET"}[c.path == "/v1/act"]
		request := fmt.Sprintf("%s %s HTTP/1.1\r\n%s\r\nContent-Length: %d\r\n\r\n%s", method, c.path, c.headers, len(fine), fine)
		status, a := raw(t, c.addr, request)
		if status != c.status || status == 403 && a.Error.Code != "forbidden" {
			t.Errorf("%s %q: %d %+v, want %d", c.path, c.headers, status, a, c.status)
		}
	}
}

// picky is a policy in which large values overflow.
type picky struct{ policies.Policy }

func (p picky) Act(a *policies.Act) error {
	v := []float32{100 * a.Obs[0]}
	if err := (nn.Tensor{Name: "values", Data: v}).CheckFinite(); err != nil {
		return fmt.Errorf("picky: %w", err)
	}
	return p.Policy.Act(a)
}

// TestSlowClients send a part of a body, and a part of a header.
func TestSlowClients(t *testing.T) {
	leak.Check(t)
	addr := start(t, "tcp", newServer(t, serve.Config{Timeout: 200 * time.Millisecond}, ppoPolicy(t, 0)))
	status, a := raw(t, addr, "POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	if status != 408 || a.Error.Code != "timeout" || !strings.Contains(a.Error.Message, "1 bytes had come") {
		t.Errorf("%d %+v", status, a)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/act HTTP/1.1\r\nHo"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil { // until the server closes it
		t.Error(err)
	}
}

// TestClientsThatGoAway leave nothing behind: neither before nor behind their request's end.
func TestClientsThatGoAway(t *testing.T) {
	leak.Check(t)
	s := newServer(t, serve.Config{}, ppoPolicy(t, 0))
	addr := start(t, "tcp", s)
	for _, text := range []string{"", "POST /v1/act HT", "POST /v1/act HTTP/1.1\r\nHost: h\r\nContent-Length: 90\r\n\r\n{", "POST " +
		"/v1/act HTTP/1.1\r\nHost: h\r\nContent-Length: 33\r\n\r\n" + fine} {
		for range 20 {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}
	if status, a := post(t, client(t), addr, fine); status != 200 {
		t.Errorf("%d %+v", status, a)
	}
}

// TestConnectionsAreBounded opens more than there may be.
func TestConnectionsAreBounded(t *testing.T) {
	leak.Check(t)
	s := newServer(t, serve.Config{MaxConns: 50}, ppoPolicy(t, 0))
	addr := start(t, "tcp", s)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range 50 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	for range 1000 {
		if status, a := raw(t, addr, ""); status != 503 || a.Error.Code != "busy" || !strings.Contains(a.Error.Message, "50 connections") {
			t.Fatalf("%d %+v", status, a)
		}
	}
	_ = open[0].Close()
	leak.Await(func() []string { // until the server has seen it
		if sample(s, "ditask_serve_connections") < 50 {
			return nil
		}
		return []string{"the connection"}
	}, time.Minute)
	if status, a := post(t, client(t), addr, fine); status != 200 {
		t.Errorf("%d %+v", status, a)
	}
}

// sample returns the value of a metric without labels, or of the one with a label's value.
func sample(s *serve.Server, name string, label ...string) float64 {
	for _, m := range s.Metrics() {
		if m.Name == name && (len(label) == 0 || m.Labels[1] == label[0]) {
			return m.Value
		}
	}
	return -1
}

// gate is a policy whose calls wait.
type gate struct {
	policies.Policy
	in, out chan int // rows of a call that begins; it continues
}

func (g *gate) Act(a *policies.Act) error {
	g.in <- len(a.Obs) / 4
	<-g.out
	if slices.Contains(a.Obs, 666) {
		panic("no such thing")
	}
	return g.Policy.Act(a)
}

func TestRequestsThatComeTogetherAreOneBatch(t *testing.T) {
	leak.Check(t)
	g := &gate{ppoPolicy(t, 0), make(chan int), make(chan int)}
	s := newServer(t, serve.Config{MaxInFlight: 6}, g)
	addr, c := start(t, "tcp", s), client(t)
	var asked sync.WaitGroup
	results := make(chan int, 10)
	ask := func(body string) {
		asked.Go(func() {
			status, _ := post(t, c, addr, body)
			results <- status
		})
	}
	ask(fine)
	if n := <-g.in; n != 1 {
		t.Fatalf("a lone request waits for others: %d", n)
	}
	for range 4 {
		ask(fine)
	}
	ask(`{"observation":[0.1,0.2,0.3,0.4],"sample":true}`)
	leak.Await(func() []string {
		if s.Waiting() == 5 {
			return nil
		}
		return []string{"requests"}
	}, time.Minute)
	if status, a := post(t, c, addr, fine); status != 429 || a.Error.Code != "busy" {
		t.Errorf("one too many: %d %+v", status, a)
	}
	g.out <- 0
	rows := map[int]int{}
	for total := 0; total < 5; {
		n := <-g.in
		rows[n]++
		total += n
		g.out <- 0
	}
	asked.Wait()
	if rows[4] != 1 || rows[1] != 1 { // the one that samples acts alone
		t.Errorf("batches %v", rows)
	}
	for range 6 {
		if status := <-results; status != 200 {
			t.Error(status)
		}
	}
}

// TestOneFailsAlone has a request on which the policy panics in a batch with others.
func TestOneFailsAlone(t *testing.T) {
	leak.Check(t)
	var log bytes.Buffer
	g := &gate{ppoPolicy(t, 0), make(chan int, 100), make(chan int)}
	close(g.out)
	s := newServer(t, serve.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, g)
	addr, c := start(t, "tcp", s), client(t)
	var asked, drained sync.WaitGroup
	drained.Go(func() {
		for range g.in {
		}
	})
	for i := range 8 {
		asked.Go(func() {
			body, want := fine, 200
			if i%4 == 0 {
				body, want = `{"observation":[666,0,0,0]}`, 500
			}
			for range 10 {
				if status, a := post(t, c, addr, body); status != want {
					t.Errorf("%d %+v", status, a)
				}
			}
		})
	}
	asked.Wait()
	close(g.in)
	drained.Wait()
	if !strings.Contains(log.String(), "no such thing") {
		t.Error(log.String())
	}
}

func TestActionsAreThoseOfThePolicy(t *testing.T) {
	leak.Check(t)
	s := newServer(t, serve.Config{}, ppoPolicy(t, 0))
	own := ppoPolicy(t, 0)
	addr, c, rng := start(t, "tcp", s), client(t), rand.New(rand.NewPCG(1, 2))
	obs := make([]float32, 4*64)
	for i := range obs {
		obs[i] = float32(rng.NormFloat64())
	}
	var rows [][]float32
	for i := range 64 {
		rows = append(rows, obs[4*i:4*i+4])
	}
	text, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, sampled := range []bool{false, true} {
		act := policies.Act{Obs: obs, Greedy: !sampled, Action: make([]float32, 64), Rand: rand.New(rand.NewPCG(7, 1)), EnvSteps: 1 << 30}
		if err := own.Act(&act); err != nil {
			t.Fatal(err)
		}
		body := `{"observations":` + string(text) + `}`
		if sampled {
			body = `{"sample":true,"seed":7,"extras":true,"observations":` + string(text) + `}`
		}
		_, a := post(t, c, addr, body)
		for i := range a.Actions {
			if float32(a.Actions[i]) != act.Action[i] {
				t.Errorf("sampled %v: action %d is %d, want %v", sampled, i, a.Actions[i], act.Action[i])
			}
		}
		if len(a.Actions) != 64 || sampled != (a.Extras["log_prob"] != nil && a.Extras["value"] != nil) {
			t.Errorf("%+v", a)
		}
	}
}

// TestNoiseOfASampleIsItsOwn: exploration that lasts for several steps begins anew with each request.
func TestNoiseOfASampleIsItsOwn(t *testing.T) {
	leak.Check(t)
	explores := func() policies.Policy {
		return ppo.New(ppo.Config{Obs: envs.NewBox(-5, 5, 2), Action: envs.NewBox(-1, 1, 1), DrawEvery: 8, Seed: 1})
	}
	addr, c := start(t, "tcp", newServer(t, serve.Config{}, explores())), client(t)
	own := explores()
	act := policies.Act{
		Obs: []float32{1, 2, 1, 2}, Action: make([]float32, 2), Noise: make([]float32, 2*own.Spec().NoiseSize),
		Rand: rand.New(rand.NewPCG(7, 1)), EnvSteps: 1 << 30,
	}
	if err := own.Act(&act); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var got struct{ Actions [][]float32 }
		resp, err := c.Post("http://"+addr+"/v1/act", "", strings.NewReader(`{"observations":[[1,2],[1,2]],"sample":true,"seed":7}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK || len(got.Actions) != 2 {
			t.Fatalf("%s, %+v: %v", resp.Status, got, err)
		}
		_ = resp.Body.Close()
		if got.Actions[0][0] != act.Action[0] || got.Actions[1][0] != act.Action[1] {
			t.Errorf("actions %v, want %v", got.Actions, act.Action)
		}
	}
}

// TestSessions has two episodes that take turns, and compares them with the policy's own.
func TestSessions(t *testing.T) {
	leak.Check(t)
	var mu sync.Mutex
	now := time.Unix(0, 0)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s := newServer(t, serve.Config{MaxSessions: 2, SessionIdle: time.Minute, Now: clock}, ppoPolicy(t, 16))
	own := ppoPolicy(t, 16)
	addr, c, rng := start(t, "tcp", s), client(t), rand.New(rand.NewPCG(3, 4))
	size := own.Spec().StateSize
	states := make([]float32, 2*size)
	for step := range 30 {
		obs := make([]float32, 8)
		for i := range obs {
			obs[i] = float32(3 * rng.NormFloat64())
		}
		act := policies.Act{Obs: obs, Greedy: true, Action: make([]float32, 2), State: states, Reset: []bool{step%10 == 0, step%10 == 0}}
		act.Extra = [][]float32{make([]float32, 2), make([]float32, 2), make([]float32, 2*size)}
		if err := own.Act(&act); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal([][]float32{obs[:4], obs[4:]})
		if err != nil {
			t.Fatal(err)
		}
		status, a := post(t, c, addr, fmt.Sprintf(`{"observations":%s,"sessions":["a","b"],"reset":%v,"extras":true}`, text, step%10 == 0))
		if status != 200 {
			t.Fatalf("%d %+v", status, a)
		}
		values, _ := a.Extras["value"].([]any)
		for i := range 2 {
			if float32(a.Actions[i]) != act.Action[i] || float32(values[i].(float64)) != act.Extra[1][i] {
				t.Fatalf("step %d: %+v, want %v and %v", step, a, act.Action, act.Extra[1])
			}
		}
	}
	say := func(session string, reset bool) (int, answer) {
		return post(t, c, addr, fmt.Sprintf(`{"observation":[1,2,3,4],"session":%q,"reset":%v}`, session, reset))
	}
	expect := func(what string, want int, code string) func(int, answer) {
		return func(status int, a answer) {
			t.Helper()
			if status != want || a.Error.Code != code {
				t.Errorf("%s: %d %+v", what, status, a)
			}
		}
	}
	expect("no session", 400, "invalid")(post(t, c, addr, fine))
	expect("not begun", 409, "unknown_session")(say("c", false))
	expect("twice in a request", 409, "session_in_use")(post(t, c, addr, `{"observations":[[1,2,3,4],[1,2,3,4]],"sessions":["b","b"]}`))
	expect("a third one", 200, "")(say("c", true))
	expect("the one that had to go", 409, "unknown_session")(say("a", false))
	expect("the one that stays", 200, "")(say("c", false))
	mu.Lock()
	now = now.Add(2 * time.Minute)
	mu.Unlock()
	expect("idle", 409, "unknown_session")(say("c", false))
	expect("too many at once", 429,
		"busy")(post(t, c, addr, `{"observations":[[1,2,3,4],[1,2,3,4],[1,2,3,4]],"sessions":["x","y","z"],"reset":true}`))
	expect("room again", 200, "")(say("x", true))
	if n := sample(s, "ditask_serve_sessions"); n != 1 {
		t.Errorf("%v sessions", n)
	}
}

// TestNewWeights are swapped in whole, and broken ones are not.
func TestNewWeights(t *testing.T) {
	leak.Check(t)
	var log bytes.Buffer
	s := newServer(t, serve.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, ppoPolicy(t, 0))
	addr, c := start(t, "tcp", s), client(t)
	stamps, loads, tick := make(chan string), make(chan policies.Policy), make(chan time.Time)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		s.Follow(ctx, serve.Source{
			Stamp: func() (string, error) { return <-stamps, nil },
			Load: func(context.Context) (policies.Policy, error) {
				if p := <-loads; p != nil {
					return p, nil
				}
				return nil, errors.New("it is cut off")
			},
		}, "one", tick)
	})
	next := func(stamp string) { tick <- time.Time{}; stamps <- stamp }
	next("one")
	next("two")
	loads <- nil
	next("two") // and is not read again
	next("three")
	loads <- ppoPolicy(t, 8) // of another run
	next("four")
	loads <- versioned{ppoPolicy(t, 0)}
	next("four")
	cancel()
	following.Wait()
	if _, a := post(t, c, addr, fine); a.Version != 99 {
		t.Errorf("%+v", a)
	}
	if n := strings.Count(log.String(), "the old ones stay"); n != 2 || sample(s, "ditask_serve_reloads_total", "ok") != 1 || sample(s,
		"ditask_serve_reloads_total", "failed") != 2 {
		t.Error(n, log.String())
	}
}

type versioned struct{ policies.Policy }

func (versioned) Version() uint64 { return 99 }

// TestEnd answers what is in progress, refuses the rest, and cuts what does not end.
func TestEnd(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint(ends), func(t *testing.T) {
			leak.Check(t)
			g := &gate{ppoPolicy(t, 0), make(chan int), make(chan int)}
			cfg := serve.Config{Grace: time.Minute}
			if !ends {
				cfg.Grace = time.Millisecond
			}
			s := newServer(t, cfg, g)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cut := make(chan int, 1)
			go func() {
				n, err := s.Run(ctx, s.Bound(l)...)
				if err != nil {
					t.Error(err)
				}
				cut <- n
			}()
			result := make(chan int, 1)
			c := client(t)
			go func() {
				resp, err := c.Post("http://"+l.Addr().String()+"/v1/act", "", strings.NewReader(fine))
				if err != nil {
					result <- 0
					return
				}
				_ = resp.Body.Close()
				result <- resp.StatusCode
			}()
			<-g.in
			cancel()
			leak.Await(func() []string {
				if sample(s, "ditask_serve_ready") == 0 {
					return nil
				}
				return []string{"ready"}
			}, time.Minute)
			if ends {
				g.out <- 0
			}
			status, n := <-result, <-cut
			if !ends {
				g.out <- 0
			}
			if ends && (status != 200 || n != 0) || !ends && (status != 0 || n != 1) {
				t.Errorf("status %d, %d cut", status, n)
			}
		})
	}
}

func TestUnixSocket(t *testing.T) {
	w := leak.Check(t)
	path := filepath.Join(w.Dir, "s.sock")
	l, err := serve.ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if _, err := serve.ListenUnix(t.Context(), path); !errors.Is(err, serve.ErrInUse) {
		t.Errorf("a living server is replaced: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left")
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	if l, err = serve.ListenUnix(t.Context(), path); err != nil {
		t.Fatalf("a dead server's stays: %v", err)
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.ListenUnix(t.Context(), path); !errors.Is(err, serve.ErrNoSocket) {
		t.Errorf("a file is replaced: %v", err)
	}
	_ = os.Remove(path)
}

// TestSocketNeedsNoToken asks over both, of a server with a token.
func TestSocketNeedsNoToken(t *testing.T) {
	leak.Check(t)
	s := newServer(t, serve.Config{Token: "s3cret"}, ppoPolicy(t, 0))
	path := start(t, "unix", s)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	if status, a := post(t, &http.Client{Transport: tr}, "socket", fine); status != 200 {
		t.Errorf("%d %+v", status, a)
	}
}

func TestMetricsAreInTheGuide(t *testing.T) {
	s := newServer(t, serve.Config{}, ppoPolicy(t, 0))
	addr := start(t, "tcp", s)
	post(t, client(t), addr, fine)
	resp, err := client(t).Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if h := families["ditask_serve_request_seconds"].GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() <= 0 {
		t.Errorf("%v", h)
	}
	text, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want strings.Builder
	for _, m := range regexp.MustCompile("(?m)^\\| `ditask_serve[a-z_]+` \\|.*$").FindAllString(string(text), -1) {
		got.WriteString(m + "\n")
	}
	for _, d := range serve.Table() {
		if families[d.Name] == nil {
			t.Errorf("%s is not there", d.Name)
		}
		want.WriteString("| `" + d.Name + "` | " + string(d.Type) + " | " + strings.Join(d.Labels, ", ") + " | " + d.Help + " |\n")
	}
	if got.String() != want.String() {
		t.Errorf("docs/serve.md has another table; it should be:\n%s", want.String())
	}
}

func TestConfigNamesAllFaults(t *testing.T) {
	_, err := serve.New(serve.Config{MaxBody: -1, Timeout: -1, Parts: []serve.Part{{Kind: "Box", Shape: []int{4}, To: 3}}}, ppoPolicy(t, 0))
	for _, want := range []string{"MaxBody -1", "Timeout -1ns", "actions: want", "parts[0]: from 0 to 3, want from 0 to 4"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
