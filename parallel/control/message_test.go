package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

func TestMessagesSurviveTheWire(t *testing.T) {
	want := []control.Message{
		{Type: control.TypeReady},
		{Type: control.TypeStatus, Status: &control.Status{Role: "learner", Step: 12, Rate: 3.5, Queue: 4, Lag: 0.5, Peers: 2, Note: `n\n`}},
		{Type: control.TypeOutcome, Outcome: &control.Outcome{Kind: control.Failure, Node: 2, Error: "a\n    b"}},
		{Type: control.TypeInterval, Interval: time.Second},
		{Type: control.TypeLost, Lost: &control.Lost{Node: 3, Incarnation: math.MaxUint64, Reason: `exit code 3: a\nb`}},
		{Type: control.TypeHello},
		{Type: "of a later version"},
	}
	var wire []byte
	var err error
	for _, m := range want {
		if wire, err = m.Append(wire); err != nil {
			t.Fatal(err)
		}
	}
	r := control.NewReader(bytes.NewReader(wire))
	for i, m := range want {
		if got, err := r.Next(); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestReaderSkipsMalformedLines(t *testing.T) {
	bad := []string{
		"", "x", `{}`, `{"type":"status"}`, `{"type":"outcome"}`, `{"type":"interval"}`, `{"type":"metrics"}`, `{"type":"lost"}`,
		`{"type":"outcome","outcome":{"kind":"so so"}}`,
		strings.Repeat("x", control.MaxLine), strings.Repeat("x", 3*control.MaxLine),
	}
	for _, line := range bad {
		r := control.NewReader(strings.NewReader(line + "\n{\"type\":\"ready\"}\n"))
		if _, err := r.Next(); !errors.Is(err, control.ErrMalformed) {
			t.Errorf("%.40q: %v", line, err)
		}
		if m, err := r.Next(); err != nil || m.Type != control.TypeReady {
			t.Errorf("after %.40q: %+v, %v", line, m, err)
		}
	}
}

func TestReaderTakesATornLineForTheEnd(t *testing.T) {
	for _, torn := range []string{`{"type":"ready"}`, strings.Repeat("x", 2*control.MaxLine)} {
		if m, err := control.NewReader(strings.NewReader(torn)).Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%.40q: %+v, %v", torn, m, err)
		}
	}
}

func TestLongTextsAreCutBelowMaxLine(t *testing.T) {
	long := strings.Repeat("\x00é", control.MaxLine)
	for _, m := range []control.Message{
		{Type: control.TypeOutcome, Outcome: &control.Outcome{Kind: control.Failure, Error: long}},
		{Type: control.TypeStatus, Status: &control.Status{Role: long, Note: long}},
		{Type: control.TypeLost, Lost: &control.Lost{Node: 3, Reason: long}},
	} {
		line, err := m.Append(nil)
		if err != nil || len(line) > control.MaxLine {
			t.Fatalf("%d bytes, %v", len(line), err)
		}
		if got, err := control.NewReader(bytes.NewReader(line)).Next(); err != nil || got.Type != m.Type {
			t.Errorf("%v", err)
		}
	}
}

// A text is cut between two characters, and has how many bytes are missing.
func TestCutTextsHaveWholeCharacters(t *testing.T) {
	for offset := range 3 {
		text := strings.Repeat("x", offset) + strings.Repeat("€", control.MaxLine)
		line, err := control.Message{Type: control.TypeOutcome, Outcome: &control.Outcome{Kind: control.Failure, Error: text}}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := control.NewReader(bytes.NewReader(line)).Next()
		if err != nil {
			t.Fatal(err)
		}
		kept, note, ok := strings.Cut(m.Outcome.Error, "... (")
		if !ok || kept == "" || !strings.HasPrefix(text, kept) || note != fmt.Sprintf("%d bytes more)", len(text)-len(kept)) {
			t.Errorf("offset %d: %d bytes are kept, then %q", offset, len(kept), note)
		}
	}
}

// A text of just the bound is not cut, and one byte more is.
func TestTextsOfTheBoundAreNotCut(t *testing.T) {
	for more, want := range map[int]string{0: "", 1: "... (1 bytes more)"} {
		m := control.Message{Type: control.TypeLost, Lost: &control.Lost{Reason: strings.Repeat("x", 8<<10+more)}}
		line, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := control.NewReader(bytes.NewReader(line)).Next()
		if err != nil || got.Lost.Reason != strings.Repeat("x", 8<<10)+want {
			t.Errorf("%d bytes more: %d bytes, %v", more, len(got.Lost.Reason), err)
		}
	}
}

// A text without the beginning of any character is cut too.
func TestATextWithoutCharactersIsCut(t *testing.T) {
	line, err := control.Message{Type: control.TypeLost, Lost: &control.Lost{Reason: strings.Repeat("\x80", 9<<10)}}.Append(nil)
	if err != nil || !strings.Contains(string(line), `"reason":"... (9216 bytes more)"`) {
		t.Errorf("%d bytes, %v", len(line), err)
	}
}

func TestAppendRefusesNaN(t *testing.T) {
	m := control.Message{Type: control.TypeStatus, Status: &control.Status{Rate: math.NaN()}}
	if b, err := m.Append([]byte("kept")); err == nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"type\":\"ready\"}\n"))
	f.Add([]byte("{\"type\":\"status\",\"status\":{\"step\":1}}\nx\n"))
	f.Add([]byte("{\"type\":\"outcome\",\"outcome\":{\"kind\":\"failure\",\"node\":1}}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := control.NewReader(bytes.NewReader(b))
		for {
			m, err := r.Next()
			switch {
			case errors.Is(err, control.ErrMalformed):
				continue
			case err != nil:
				return
			}
			if _, err := m.Append(nil); err != nil {
				t.Errorf("%+v was read and cannot be written: %v", m, err)
			}
		}
	})
}
