package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/metrics"
)

func TestMetricsAddress(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "0": "127.0.0.1:0", "9090": "127.0.0.1:9090", "65535": "127.0.0.1:65535",
		"0.0.0.0:80": "0.0.0.0:80", ":80": ":80", "[::1]:80": "[::1]:80", "h:0": "h:0",
	} {
		if got, err := metricsAddress(args(t, "--metrics-port", in)); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"65536", "-1", "+1", "080", "x", "h:x", "h:", "::1", "h:1:2"} {
		_, err := metricsAddress(args(t, "--metrics-port", in))
		expect(t, err, fmt.Sprintf("--metrics-port %q: want a port, 0 for a free one, or ADDRESS:PORT", in))
	}
}

func TestHealthz(t *testing.T) {
	states := func(phases ...launch.Phase) (out []launch.State) {
		for i, p := range phases {
			out = append(out, launch.State{ID: i, Phase: p, Restarts: 2 * i})
		}
		return out
	}
	for _, c := range []struct {
		states []launch.State
		code   int
		text   string
	}{
		{nil, 200, "ok\n"},
		{states(launch.Running, launch.Ended), 200, "ok\n"},
		{states(launch.Running, launch.Backoff, launch.Starting), 503,
			"node 1 has failed and will be restarted, after 2 restarts\nnode 2 is starting, after 4 restarts\n"},
		{states(launch.Waiting), 503, "node 0 waits for its first start\n"},
		{states(launch.Failed, launch.Failed), 503, "node 0 has failed\nnode 1 has failed, after 2 restarts\n"},
		{[]launch.State{{ID: 4, Phase: launch.Failed, Restarts: 1}}, 503, "node 4 has failed, after 1 restart\n"},
	} {
		w := httptest.NewRecorder()
		healthz(w, c.states)
		if w.Code != c.code || w.Body.String() != c.text || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%+v: %d %q", c.states, w.Code, w.Body)
		}
	}
}

// nobody is a launcher without running nodes.
type nobody struct{}

func (nobody) Snapshot() []launch.State { return []launch.State{{ID: 3, Phase: launch.Backoff}} }
func (nobody) Metrics(context.Context) []metrics.Sample {
	return nil
}

func TestMetricsAreServedUntilStop(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := listenMetrics(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	busy := "--metrics-port " + l.Addr().String() + ": address already in use: choose another port, or 0 for a free one"
	if _, err := listenMetrics(t.Context(), l.Addr().String()); err == nil || err.Error() != busy {
		t.Errorf("a busy port: %v", err)
	}
	var said strings.Builder
	stop := serveMetrics(l, nobody{}, &said, "text")
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for path, code := range map[string]int{"/metrics": 200, "/healthz": 503, "/": 404} {
		resp, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != code {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	stop()
	if want := "ditask: metrics at http://" + l.Addr().String() + "/metrics\n"; said.String() != want {
		t.Errorf("wrote %q, want %q", said.String(), want)
	}
	if c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute); err == nil {
		_ = c.Close()
		t.Error("it listens after stop")
	}
}

func TestNoMetricsWithoutAnAddress(t *testing.T) {
	l, err := listenMetrics(t.Context(), "")
	if l != nil || err != nil {
		t.Fatal(l, err)
	}
	var said strings.Builder
	serveMetrics(l, nobody{}, &said, "text")()
	if said.Len() > 0 {
		t.Error(said.String())
	}
}

func TestNotesInJSONHaveTheirAttributes(t *testing.T) {
	var said strings.Builder
	(&call.Call{Stderr: &said}).Note("json", "metrics at u", slog.String("url", "u"))
	var line map[string]any
	if err := json.Unmarshal([]byte(said.String()),
		&line); err != nil || line["msg"] != "metrics at u" || line["url"] != "u" || line["level"] != "INFO" || line["time"] == nil {
		t.Errorf("%s, %v", said.String(), err)
	}
	said.Reset()
	(&call.Call{Stderr: &said}).Note("text", "metrics at u", slog.String("url", "u"))
	if said.String() != "ditask: metrics at u\n" {
		t.Errorf("as text: %q", said.String())
	}
}

func TestReportIsWrittenOnce(t *testing.T) {
	failed := launch.Result{Kind: control.Failure, First: &launch.Failure{Node: 2, Cause: 2, ExitCode: 4, Error: "out of luck"}}
	for _, c := range []struct {
		r                    launch.Result
		format, advice, want string
		code                 int
	}{
		{launch.Result{Kind: control.Success}, "text", "", "", 0},
		{failed, "text", "", "ditask: the job failed because of node 2: exit code 4\n", 4},
		{launch.Result{Kind: control.Preempted}, "text", "",
			"ditask: the job was preempted: exit code 75; --resume continues from its checkpoints\n", 75},
		{failed, "text", "do this", "ditask: do this\nditask: the job failed because of node 2: exit code 4\n", 4},
	} {
		var stderr strings.Builder
		err := command{&call.Call{Stderr: &stderr}, nil}.report(c.r, c.format, func(launch.Result) string { return c.advice })
		code, ok := errors.AsType[call.ExitError](err)
		if !ok || int(code) != c.code || stderr.String() != c.want {
			t.Errorf("%v %q, want %d %q", err, stderr.String(), c.code, c.want)
		}
	}
	var stderr strings.Builder
	_ = command{&call.Call{Stderr: &stderr}, nil}.report(failed, "json", func(launch.Result) string { return "" })
	var line map[string]any
	if err := json.Unmarshal([]byte(stderr.String()),
		&line); err != nil || line["level"] != "ERROR" || line["msg"] != "the job failed because of node 2: exit code 4" ||
		line["node"] != 2.0 || line["code"] != 4.0 {
		t.Errorf("%s, %v", stderr.String(), err)
	}
}
