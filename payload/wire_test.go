package payload

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// wireSample is the type of the worked example in docs/wire.md.
type wireSample struct {
	Step   int64
	Obs    []float32
	Action [2]int32
	Reward float64
	Done   bool
	Name   string
	Mask   []byte
	Info   map[string]int
	Next   *wireSample
	Took   time.Duration
	At     time.Time
	From   netip.Addr
	Extra  any
}

func wireExample() wireSample {
	return wireSample{
		Step: -2, Obs: []float32{1, -0.5}, Action: [2]int32{3, 1000}, Reward: 0.25, Done: true, Name: "pole",
		Mask: []byte{1, 0}, Info: map[string]int{"lives": 3, "hp": 500}, Took: time.Microsecond,
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), From: netip.MustParseAddr("10.0.0.7"), Extra: []float64{1},
	}
}

func TestTheWorkedExampleIsEncodedAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```payload\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/wire.md has no block of payload bytes")
	}
	var documented strings.Builder
	for line := range strings.Lines(string(block[1])) {
		code, _, _ := strings.Cut(line, "#")
		documented.WriteString(strings.Join(strings.Fields(code), ""))
	}
	want := unhex(t, documented.String())
	v := wireExample()
	p := mustPlan(t, reflect.TypeFor[wireSample]())
	if got := mustAppend(t, p, &v); !bytes.Equal(got, want) {
		t.Errorf("written    % x\ndocumented % x", got, want)
	}
	var got wireSample
	if err := p.Decode(want, &got, false); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("the documented bytes are %+v, %v", got, err)
	}
	for _, fact := range []string{p.Schema(), fmt.Sprintf("0x%016x", p.Fingerprint())} {
		if !strings.Contains(string(text), fact) {
			t.Errorf("docs/wire.md does not have %s", fact)
		}
	}
}
