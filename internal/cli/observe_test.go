//go:build linux

package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ditask/ditask/parallel/metrics"
)

// scrape reads a page; metrics are the result of Prometheus' parser.
func scrape(t *testing.T, url string) (status int, body string, families map[string]*dto.MetricFamily) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(url, "/metrics") {
		return resp.StatusCode, string(b), nil
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err = p.TextToMetricFamilies(strings.NewReader(string(b)))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return resp.StatusCode, string(b), families
}

// numbers returns the values of one metric, by labels in the order given; values with
// the same are summed.
func numbers(f *dto.MetricFamily, labels ...string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f.GetMetric() {
		var key []string
		for _, want := range labels {
			for _, l := range m.GetLabel() {
				if l.GetName() == want {
					key = append(key, l.GetValue())
				}
			}
		}
		out[strings.Join(key, " ")] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return out
}

// startWatched starts a job that serves metrics, and returns their address.
func (j *job) startWatched(t *testing.T) (url string) {
	t.Helper()
	j.Stderr = nil
	lines, err := j.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Process.Kill() }) // if the test fails before its end
	r := bufio.NewReader(io.TeeReader(lines, &j.log))
	found := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`)
	for url == "" {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no metrics: %v\n%s", err, j.log.String())
		}
		url = found.FindString(line)
	}
	rest := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, r); close(rest) }()
	t.Cleanup(func() { <-rest })
	return url
}

// TestMetricsOfAJobAddUp reads the metrics of three nodes that talk to each other
// under every policy: at any moment what was sent is delivered, dropped, lost,
// queued or in flight, and at the end the number that one node has delivered is
// the number that the other has consumed.
func TestMetricsOfAJobAddUp(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--metrics-port", "0", "--job-id", "watched", "--", "0=talk", "1=talk", "2=talk")
	url := j.startWatched(t)
	const said = 200 // as in testdata/nodes
	deadline := time.After(30 * time.Second)
	for settled := false; !settled; {
		_, text, m := scrape(t, url)
		stream := []string{"node", "event", "peer"}
		sent := numbers(m["ditask_events_sent_total"], stream...)
		settled = len(sent) >= 3*2*3
		parts := map[string]map[string]float64{}
		for _, name := range []string{"delivered_total", "dropped_total", "lost_total", "queued", "in_flight"} {
			parts[name] = numbers(m["ditask_events_"+name], stream...)
		}
		for key, n := range sent {
			sum := 0.0
			for _, part := range parts {
				sum += part[key]
			}
			if sum != n {
				t.Fatalf("%s: %v sent, %v accounted for:\n%s", key, n, sum, text)
			}
			settled = settled && n == said && parts["in_flight"][key] == 0 && parts["queued"][key] == 0
		}
		if settled {
			delivered, consumed := parts["delivered_total"], numbers(m["ditask_events_consumed_total"], stream...)
			for key, n := range delivered {
				w := strings.Fields(key) // node, event, peer
				if got := consumed[w[2]+" "+w[1]+" "+w[0]]; got != n {
					t.Errorf("%s: %v delivered, %v consumed there", key, n, got)
				}
			}
			complete(t, m)
		}
		select {
		case <-deadline:
			t.Fatalf("not settled:\n%s", text)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if status, body, _ := scrape(t, strings.TrimSuffix(url, "metrics")+"healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %q", status, body)
	}
	_ = j.Process.Signal(syscall.SIGTERM)
	j.expect(t, j.Wait(), 75)
}

// tableOfMetrics returns the names of all metrics.
func tableOfMetrics() []string {
	var names []string
	for _, d := range metrics.Table() {
		names = append(names, d.Name)
	}
	return names
}

// complete checks the metrics of every node of such a job, with their labels.
func complete(t *testing.T, m map[string]*dto.MetricFamily) {
	t.Helper()
	may := map[string]bool{ // metrics of events that did not happen in this job
		"ditask_connections_refused_total": true, "ditask_transport": true, "ditask_task_events_dropped_total": true,
		"ditask_peer_rtt_seconds": true, "ditask_events_dropped_total": true,
	}
	for _, name := range tableOfMetrics() {
		f := m[name]
		if f == nil {
			if !may[name] && !strings.HasPrefix(name, "ditask_shared_memory_") {
				t.Errorf("%s is missing", name)
			}
			continue
		}
		for _, metric := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["job"] != "watched" || !slices.Contains([]string{"0", "1", "2"}, labels["node"]) {
				t.Errorf("%s: labels %v", name, labels)
			}
		}
	}
	for name := range m {
		if !slices.Contains(tableOfMetrics(), name) {
			t.Errorf("%s is not in the table", name)
		}
	}
	for name, least := range map[string]float64{
		"ditask_node_up": 1, "ditask_node_answered": 1, "process_resident_memory_bytes": 1 << 20, "go_goroutines": 5, "process_open_fds": 3,
		"ditask_task_listener_seconds_total": 1e-9, "ditask_peer_sent_bytes_total": 1000, "ditask_events_delivered_bytes_total": 1000,
	} {
		of := numbers(m[name], "node")
		for node := range 3 {
			if v := of[fmt.Sprint(node)]; v < least {
				t.Errorf("%s of node %d is %v", name, node, v)
			}
		}
	}
}

// TestHealthzNamesTheNodesThatDoNotRun has a node that fails at once and waits for its
// restart.
func TestHealthzNamesTheNodesThatDoNotRun(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--metrics-port", "127.0.0.1:0", "--auto-recover", "--", "0=lead", "1=fail")
	url := j.startWatched(t)
	restarts := regexp.MustCompile(`(?m)^node 1 (has failed and will be restarted|is starting), after [1-3] restarts?$`)
	deadline := time.After(30 * time.Second)
	for {
		status, body, _ := scrape(t, strings.TrimSuffix(url, "metrics")+"healthz")
		if status == http.StatusServiceUnavailable && restarts.MatchString(body) {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("%d %s", status, body)
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = j.Process.Signal(syscall.SIGTERM)
	if got := code(t, j.Wait()); got != 75 && got != 1 { // the node may fail for good just now
		t.Errorf("exit code %d", got)
	}
}

// TestReplayCrashesAsTheNodeDid records a job in which node 1 panics because of a message that it
// receives, and replays the same messages.
func TestReplayCrashesAsTheNodeDid(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--trace", "rec", "--", "0=count", "1=trip", "2=wait")
	j.expect(t, j.Run(), 1)
	if !strings.Contains(j.log.String(), "tripped over 3") {
		t.Fatalf("log:\n%s", j.log.String())
	}
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	rec := filepath.Join(j.Dir, "rec")
	for _, fast := range []string{"--fast", "--fast=false"} {
		cmd := exec.Command(p.ditask, "trace", "replay", rec, "--node", "1", fast, "--package", p.nodes)
		cmd.Env = j.watch.Environ()
		out, err := cmd.CombinedOutput()
		if got := code(t, err); got != 1 || !strings.Contains(string(out), "tripped over 3") || !strings.Contains(string(out),
			"replay of node 1, attempt 0, of job ") {
			t.Errorf("%s: exit code %d:\n%s", fast, got, out)
		}
	}
	show, err := exec.Command(p.ditask, "trace", "show", rec, "--event", "told", "--node=1").Output()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`(?m) 0 -> 1 +told +\d+ +\d+ +[\d.]+ ms$`).FindAllString(string(show), -1)); n < 4 {
		t.Errorf("%d messages received:\n%s", n, show)
	}
	if left := j.watch.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
