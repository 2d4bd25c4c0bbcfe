package metrics_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ditask/ditask/parallel/metrics"
)

// parse reads the text format as Prometheus does.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return families
}

func TestWrittenMetricsAreReadBack(t *testing.T) {
	values := []float64{0, 1, -2, 0.125, 1e300, 1 << 60, 12345678, math.Inf(1), math.Inf(-1), math.NaN()}
	words := []string{"", "plain", `a "quoted" \ word`, "two\nlines", `\n`, "ünïcode 世界", "{}=,# HELP x"}
	var samples []metrics.Sample
	for _, d := range metrics.Table() {
		for i, w := range words {
			s := metrics.Sample{Name: d.Name, Value: values[(i+len(samples))%len(values)]}.With("job", "j", "node", w)
			for _, l := range d.Labels {
				s.Labels = append(s.Labels, l, w+l)
			}
			samples = append(samples, s)
		}
	}
	samples = append(samples, metrics.Sample{Name: "unknown", Value: 1})
	var b strings.Builder
	if err := metrics.Write(&b, samples); err != nil {
		t.Fatal(err)
	}
	families := parse(t, b.String())
	if len(families) != len(metrics.Table()) {
		t.Errorf("%d families of %d", len(families), len(metrics.Table()))
	}
	at := 0
	for _, d := range metrics.Table() {
		f := families[d.Name]
		if f.GetHelp() != d.Help || strings.ToLower(f.GetType().String()) != string(d.Type) || len(f.GetMetric()) != len(words) {
			t.Fatalf("%s: help %q, type %v, %d samples", d.Name, f.GetHelp(), f.GetType(), len(f.GetMetric()))
		}
		for _, m := range f.GetMetric() {
			want := samples[at]
			at++
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if value != want.Value && !(math.IsNaN(value) && math.IsNaN(want.Value)) {
				t.Errorf("%s is %v, want %v", d.Name, value, want.Value)
			}
			for _, l := range m.GetLabel() {
				if l.GetValue() != want.Label(l.GetName()) {
					t.Errorf("%s: label %s is %q, want %q", d.Name, l.GetName(), l.GetValue(), want.Label(l.GetName()))
				}
			}
			if len(m.GetLabel()) != len(want.Labels)/2 {
				t.Errorf("%s: labels %v", d.Name, m.GetLabel())
			}
		}
	}
}

func TestInvalidUTF8IsReplaced(t *testing.T) {
	var b strings.Builder
	_ = metrics.Write(&b, []metrics.Sample{{Name: metrics.NodeUp, Labels: []string{"node", "\xff1"}, Value: 1}})
	if got := parse(t, b.String())[metrics.NodeUp].GetMetric()[0].GetLabel()[0].GetValue(); got != "\uFFFD1" {
		t.Errorf("%q", got)
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range metrics.Table() {
		if seen[d.Name] || !model.LegacyValidation.IsValidMetricName(d.Name) || d.Help == "" || !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%+v", d)
		}
		if total := strings.HasSuffix(d.Name, "_total"); total != (d.Type == metrics.Counter) {
			t.Errorf("%s is a %s", d.Name, d.Type)
		}
		seen[d.Name] = true
	}
}

// TestTheGuideHasEveryMetric compares the table in docs/observability.md with the
// table of the program; both must be equal.
func TestTheGuideHasEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want strings.Builder
	for _, m := range regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| (counter|gauge) \\|.*$").FindAllString(string(text), -1) {
		got.WriteString(m + "\n")
	}
	for _, d := range metrics.Table() {
		want.WriteString("| `" + d.Name + "` | " + string(d.Type) + " | " + strings.Join(d.Labels, ", ") + " | " + d.Help + " |\n")
	}
	if got.String() != want.String() {
		t.Errorf("docs/observability.md has another table; it should be:\n%s", want.String())
	}
}

func TestHandlerServesText(t *testing.T) {
	server := httptest.NewServer(metrics.Handler(func(context.Context) []metrics.Sample {
		return []metrics.Sample{{Name: metrics.NodeUp, Value: 1}}
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.Header.Get("Content-Type") != metrics.ContentType || parse(t, string(body))[metrics.NodeUp] == nil {
		t.Errorf("%v\n%s", resp.Header, body)
	}
}

func TestTextOfASample(t *testing.T) {
	for want, s := range map[string]metrics.Sample{
		"ditask_node_up 1\n":                     {Value: 1},
		"ditask_node_up{a=\"b\"} 1200000\n":      {Labels: []string{"a", "b"}, Value: 1.2e6},
		"ditask_node_up{a=\"b\",c=\"d\"} -0.5\n": {Labels: []string{"a", "b", "c", "d"}, Value: -0.5},
		"ditask_node_up 2\n":                     {Labels: []string{"a name without a value"}, Value: 2},
		"ditask_node_up{a=\"b\"} 3\n":            {Labels: []string{"a", "b", "c"}, Value: 3},
		"ditask_node_up 9007199254740991\n":      {Value: 1<<53 - 1},
		"ditask_node_up -9007199254740991\n":     {Value: -(1<<53 - 1)},
		"ditask_node_up 9.007199254740992e+15\n": {Value: 1 << 53},
		"ditask_node_up 1e-09\n":                 {Value: 1e-9},
		"ditask_node_up{a=\"q\\\"\\\\\\n\"} 0\n": {Labels: []string{"a", "q\"\\\n"}},
	} {
		s.Name = metrics.NodeUp
		var b strings.Builder
		if err := metrics.Write(&b, []metrics.Sample{s}); err != nil {
			t.Fatal(err)
		}
		// One family has its two lines of comments, and no other family has any.
		help, rest, _ := strings.Cut(b.String(), "\n")
		kind, got, _ := strings.Cut(rest, "\n")
		if got != want || !strings.HasPrefix(help, "# HELP ditask_node_up 1 if ") || kind != "# TYPE ditask_node_up gauge" {
			t.Errorf("%q, want %q, after\n%s\n%s", got, want, help, kind)
		}
	}
}

func TestLabelOfASample(t *testing.T) {
	s := metrics.Sample{Labels: []string{"a", "1", "b", "2", "odd"}}.With("job", "j")
	for name, want := range map[string]string{"job": "j", "a": "1", "b": "2", "1": "", "odd": "", "c": ""} {
		if got := s.Label(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// short accepts some bytes and then fails.
type short int

func (s *short) Write(b []byte) (int, error) {
	if int(*s) < len(b) {
		return 0, io.ErrShortWrite
	}
	*s -= short(len(b))
	return len(b), nil
}

func TestErrorOfTheWriterIsReturned(t *testing.T) {
	var samples []metrics.Sample
	for _, d := range metrics.Table() {
		for range 20 {
			samples = append(samples, metrics.Sample{Name: d.Name})
		}
	}
	for _, room := range []short{0, 5000} { // before the end, and in the last flush of a short text
		if err := metrics.Write(&room, samples); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("all samples: %v", err)
		}
	}
	none := short(0)
	if err := metrics.Write(&none, samples[:1]); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("one sample: %v", err)
	}
	calls := counted{}
	if err := metrics.Write(&calls, samples); !errors.Is(err, io.ErrShortWrite) || calls.n != 1 {
		t.Errorf("after the first error it wrote %d more times: %v", calls.n-1, err)
	}
}

// counted fails, and counts how often it is called.
type counted struct{ n int }

func (c *counted) Write([]byte) (int, error) {
	c.n++
	return 0, io.ErrShortWrite
}

func TestHistogramOfATableOfItsOwn(t *testing.T) {
	table := []metrics.Desc{{Name: "own_seconds", Type: metrics.Histogram, Help: "Time."}}
	var b strings.Builder
	if err := metrics.WriteOf(&b, table, []metrics.Sample{
		{Name: "own_seconds_count", Value: 3},
		{Name: "own_seconds_bucket", Labels: []string{"le", "0.5"}, Value: 2},
		{Name: "own_seconds_bucket", Labels: []string{"le", "+Inf"}, Value: 3},
		{Name: "own_seconds_sum", Value: 1.5}, {Name: metrics.NodeUp, Value: 1},
	}); err != nil {
		t.Fatal(err)
	}
	families := parse(t, b.String())
	h := families["own_seconds"].GetMetric()[0].GetHistogram()
	if len(families) != 1 || h.GetSampleCount() != 3 || h.GetSampleSum() != 1.5 || len(h.GetBucket()) != 2 ||
		h.GetBucket()[0].GetCumulativeCount() != 2 {
		t.Errorf("%v", b.String())
	}
}
