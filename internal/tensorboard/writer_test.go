package tensorboard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/internal/pythontest"
)

// at returns a clock that stands.
func at(seconds int64) func() time.Time {
	return func() time.Time { return time.Unix(seconds, 0) }
}

func create(t *testing.T, cfg Config) *Writer {
	t.Helper()
	w, err := Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// crc is CRC-32C bit by bit.
func crc(data []byte) uint32 {
	c := ^uint32(0)
	for _, b := range data {
		c ^= uint32(b)
		for range 8 {
			c = c>>1 ^ 0x82f63b78&-(c&1)
		}
	}
	return ^c
}

// bodies returns the data of all whole records, whose checksums are checked.
func bodies(t *testing.T, data []byte) (all [][]byte) {
	t.Helper()
	masked := func(b []byte) uint32 {
		c := crc(b)
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for len(data) >= 12 {
		n := binary.LittleEndian.Uint64(data)
		if got := binary.LittleEndian.Uint32(data[8:]); got != masked(data[:8]) {
			t.Fatalf("record %d: the checksum of its length is %#x", len(all), got)
		}
		if uint64(len(data)) < 16+n {
			break
		}
		body := data[12 : 12+n]
		if got := binary.LittleEndian.Uint32(data[12+n:]); got != masked(body) {
			t.Fatalf("record %d: the checksum of its data is %#x", len(all), got)
		}
		all, data = append(all, body), data[16+n:]
	}
	return all
}

// field is one field of a message.
type field struct {
	number int
	number64,
	bytes any
}

// fields parses a message by hand.
func fields(t *testing.T, data []byte) (all []field) {
	t.Helper()
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 {
			t.Fatalf("no key in %x", data)
		}
		data = data[n:]
		f := field{number: int(key >> 3)}
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(data)
			f.number64, data = v, data[n:]
		case 1:
			f.number64, data = math.Float64frombits(binary.LittleEndian.Uint64(data)), data[8:]
		case 2:
			l, n := binary.Uvarint(data)
			f.bytes, data = data[n:n+int(l)], data[n+int(l):]
		case 5:
			f.number64, data = math.Float32frombits(binary.LittleEndian.Uint32(data)), data[4:]
		default:
			t.Fatalf("wire type %d", key&7)
		}
		all = append(all, f)
	}
	return all
}

// TestChecksumsAreThoseOfTheFormat: the check value of CRC-32C, and the first bytes of every event file
// that TensorFlow writes, whose first record has 24 bytes.
func TestChecksumsAreThoseOfTheFormat(t *testing.T) {
	if got := crc([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("the reader's CRC-32C of the check string is %#x", got)
	}
	got := appendRecord(nil, make([]byte, 24))[:12]
	if want := []byte{0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22}; !bytes.Equal(got, want) {
		t.Errorf("a record of 24 bytes begins with % x, want % x", got, want)
	}
}

// TestFileHasTheFieldsOfTheMessages, read by hand.
func TestFileHasTheFieldsOfTheMessages(t *testing.T) {
	w := create(t, Config{Dir: t.TempDir(), Clock: at(1_700_000_000)})
	if err := w.Scalars(5, []Scalar{{"eval/mean_reward", 1.5}, {"b", math.Inf(-1)}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.Path()) // before Close: a row is in the file when Scalars returns
	if err != nil {
		t.Fatal(err)
	}
	all := bodies(t, data)
	if len(all) != 2 {
		t.Fatalf("%d records", len(all))
	}
	if got, want := fields(t, all[0]), []field{{1, 1.7e9, nil}, {3, nil, []byte("brain.Event:2")}}; !reflect.DeepEqual(got, want) {
		t.Errorf("first event %v, want %v", got, want)
	}
	event := fields(t, all[1])
	if len(event) != 3 || event[1] != (field{2, uint64(5), nil}) || event[2].number != 5 {
		t.Fatalf("event %v", event)
	}
	values := fields(t, event[2].bytes.([]byte))
	for i, want := range [][]field{
		{{1, nil, []byte("eval/mean_reward")}, {2, float32(1.5), nil}}, {{1, nil, []byte("b")}, {2, float32(math.Inf(-1)), nil}},
	} {
		if got := fields(t, values[i].bytes.([]byte)); values[i].number != 1 || !reflect.DeepEqual(got, want) {
			t.Errorf("value %d: %v, want %v", i, got, want)
		}
	}
}

// TestHistogramCountsEachValueOnce.
func TestHistogramCountsEachValueOnce(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	h, ok := newHistogram([]float32{0, 1, nan, 30, inf, 29.5, 0.5})
	want := make([]float64, buckets)
	want[0], want[1], want[29] = 2, 1, 2 // 0 and 0.5; 1; 29.5 and 30
	if !ok || h.min != 0 || h.max != 30 || h.num != 5 || h.sum != 61 || h.squares != 1771.5 || !slices.Equal(h.counts, want) {
		t.Errorf("%+v", h)
	}
	if h.limits[0] != 1 || h.limits[29] != 30 || !slices.IsSorted(h.limits) {
		t.Errorf("limits %v", h.limits)
	}
	if h, ok := newHistogram([]float32{2, 2}); !ok || !slices.Equal(h.limits, []float64{2}) || !slices.Equal(h.counts, []float64{2}) {
		t.Errorf("equal values: %+v", h)
	}
	if _, ok := newHistogram([]float32{nan, -inf}); ok {
		t.Error("a histogram of nothing")
	}
}

// python runs the reader, which has the standard library alone, and decodes what it prints.
func python(t *testing.T, path string, into any) {
	t.Helper()
	program := pythontest.Program(t)
	out, err := exec.CommandContext(t.Context(), program, filepath.Join("testdata", "read_events.py"), path).Output()
	if err != nil {
		var text []byte
		if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it as it is
			text = e.Stderr
		}
		t.Fatalf("%v\n%s", err, text)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPythonReadsAllThatIsWritten, and what is cut off at the end of a file is left out.
func TestPythonReadsAllThatIsWritten(t *testing.T) {
	w := create(t, Config{Dir: t.TempDir(), Clock: at(1_700_000_000), Resume: true, Step: 300})
	session := Session{HParams: map[string]any{"rate": 0.5, "env": "Ünïcode", "dueling": true, "n": 3}, Metrics: []string{"a/b"}, Group: "g"}
	for _, err := range []error{
		w.Start(session), w.Histogram(301, "weights/w", []float32{1, 3, 3}), w.Scalars(1<<40, []Scalar{{"a/b", 2.5}}), w.End(Failure), w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type object = map[string]any
	plugin := func(tag, kind string, content any) object {
		return object{
			"tag": tag, "tensor": object{"dtype": 1.0, "tensor_shape": object{"dim": []any{object{"size": 1.0}}}, "float_val": []any{0.0}},
			"metadata": object{"plugin_data": object{"plugin_name": "hparams", "content": object{kind: content}}},
		}
	}
	limits, counts := make([]any, buckets), make([]any, buckets)
	for i := range limits {
		limits[i], counts[i] = 1+2./buckets*float64(i+1), 0.0
	}
	limits[29], counts[0], counts[29] = 3.0, 1.0, 2.0
	now := 1.7e9
	of := func(step float64, values ...any) object {
		e := object{"wall_time": now, "summary": object{"value": values}}
		if step > 0 {
			e["step"] = step
		}
		return e
	}
	info := func(name string, kind float64) any { return object{"name": name, "type": kind} }
	param := func(name, kind string, v any) any { return object{"key": name, "value": object{kind: v}} }
	want := []any{
		object{"wall_time": now, "file_version": "brain.Event:2"},
		object{"wall_time": now, "step": 300.0, "session_log": object{"status": 1.0}},
		of(0, plugin("_hparams_/experiment", "experiment", object{
			"time_created_secs": now, "hparam_infos": []any{info("dueling", 2), info("env", 1), info("n", 3), info("rate", 3)},
			"metric_infos": []any{object{"name": object{"tag": "a/b"}}},
		}), plugin("_hparams_/session_start_info", "session_start_info", object{
			"hparams": []any{param("dueling", "bool", 1.0), param("env", "string", "Ünïcode"), param("n", "number", 3.0),
				param("rate", "number", 0.5)},
			"group_name": "g", "start_time_secs": now,
		})),
		of(301, object{"tag": "weights/w", "histo": object{
			"min": 1.0, "max": 3.0, "num": 3.0, "sum": 7.0, "sum_squares": 19.0, "bucket_limit": limits, "bucket": counts,
		}}),
		of(1<<40, object{"tag": "a/b", "simple_value": 2.5}),
		of(0, plugin("_hparams_/session_end_info", "session_end_info", object{"status": 2.0, "end_time_secs": now})),
	}
	var got object
	python(t, w.Path(), &got)
	if diff := cmp.Diff(object{"events": want, "cut": false}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	data, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	for _, lost := range []int{1, 30, len(data) - 16} { // in the last record, twice, and in the first
		if err := os.WriteFile(cut, data[:len(data)-lost], 0o600); err != nil {
			t.Fatal(err)
		}
		got := object{}
		python(t, cut, &got)
		if whole := len(bodies(t, data[:len(data)-lost])); got["cut"] != true || len(got["events"].([]any)) != whole {
			t.Errorf("without the last %d bytes: %v, want %d events", lost, got, whole)
		}
	}
}

// TestAResumedRunDoublesNoStep: the reader drops the steps that are made again, and the files sort in the
// order of their starts, also when the clock is set back.
func TestAResumedRunDoublesNoStep(t *testing.T) {
	dir := t.TempDir()
	write := func(seconds int64, resume bool, steps ...int64) {
		w := create(t, Config{Dir: dir, Resume: resume, Step: steps[0], Clock: at(seconds)})
		for _, s := range steps {
			if err := w.Scalars(s, []Scalar{{"x", float64(seconds)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(500, false, 1, 2, 3, 4)
	write(500, true, 3, 4, 5)
	write(200, true, 5, 6)
	var got map[string][][2]float64
	python(t, dir, &got)
	if want := [][2]float64{{1, 500}, {2, 500}, {3, 500}, {4, 500}, {5, 200}, {6, 200}}; !slices.Equal(got["x"], want) {
		t.Errorf("scalars %v, want %v", got["x"], want)
	}
	other := filepath.Join(dir, "events.out.tfevents.0000000001.host")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(100, false, 7) // again
	got = nil
	python(t, dir, &got)
	if want := [][2]float64{{7, 100}}; !slices.Equal(got["x"], want) {
		t.Errorf("scalars of a run that began anew %v, want %v", got["x"], want)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the file of another program: %v", err)
	}
}

// TestUntimedFilesAreEqual, where their values are.
func TestUntimedFilesAreEqual(t *testing.T) {
	file := func(seconds int64) string {
		w := create(t, Config{Dir: t.TempDir(), Untimed: true, Clock: at(seconds)})
		for _, err := range []error{w.Start(Session{HParams: map[string]any{"a": 1, "b": 2}}), w.Scalars(1, []Scalar{{"x", 2}}), w.End(Success)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(w.Path())
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if one, two := file(1), file(99); one != two {
		t.Errorf("%q\n%q", one, two)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := create(t, Config{Dir: dir})
	start := func(v any) error { return w.Start(Session{HParams: map[string]any{"layers": v}}) }
	before, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]func() error{
		file:                                 func() error { _, err := Create(Config{Dir: file}); return err },
		"first step -1":                      func() error { _, err := Create(Config{Dir: dir, Step: -1}); return err },
		`folder ""`:                          func() error { _, err := Create(Config{}); return err },
		"hyperparameter layers: []int is no": func() error { return start([]int{1}) },
		"hyperparameter layers: NaN":         func() error { return start(math.NaN()) },
		"hyperparameter layers: <nil>":       func() error { return start(nil) },
		`hyperparameter layers: "\xff"`:      func() error { return start("\xff") },
		`the name "\xff"`:                    func() error { return w.Start(Session{Metrics: []string{"\xff"}}) },
		`the name ""`:                        func() error { return w.Scalars(1, []Scalar{{"", 1}}) },
		`the name "a\xff"`:                   func() error { return w.Histogram(1, "a\xff", []float32{1}) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if after, err := os.ReadFile(w.Path()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a refused call has written %q: %v", after[len(before):], err)
	}
}

// TestAFullDiskIsAnError: it names the file.
func TestAFullDiskIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	w := &Writer{cfg: Config{Clock: at(0)}, file: full}
	defer w.Close()
	if err := w.Scalars(1, []Scalar{{"x", 1}}); err == nil || !strings.Contains(err.Error(), "/dev/full") {
		t.Errorf("%v", err)
	}
}
