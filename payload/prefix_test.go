package payload

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// No proper prefix of a payload is one.
func TestEveryPrefixIsRefused(t *testing.T) {
	wide := exampleWide()
	now := time.Unix(1, 5).UTC()
	for _, v := range []any{
		&wide, &now, new(netip.MustParseAddr("::1")), new(any(map[string]any{"a": []any{int64(1), 2.5, []float32{1, 2}, []byte("b"), now, nil}})),
		&map[int16][2]float32{-300: {1, 2}}, &struct{ A, B float64 }{1, 2}, &struct{ A []int16 }{[]int16{1, -300}}, new(new(uint32(1 << 20))),
	} {
		p := mustPlan(t, reflect.TypeOf(v).Elem())
		whole := mustAppend(t, p, v)
		for n := range whole {
			got := reflect.New(reflect.TypeOf(v).Elem())
			err := p.Decode(whole[:n:n], got.Interface(), false)
			if _, ok := errors.AsType[*DecodeError](err); !ok || !got.Elem().IsZero() {
				t.Errorf("%T: %d of %d bytes: %v, %v", v, n, len(whole), err, got.Elem())
			}
		}
	}
}

// As many elements as the limit allows are taken, of each kind that has one.
func TestAsManyElementsAsTheLimit(t *testing.T) {
	c := New(Limits{MaxElements: 3})
	for _, v := range []any{&[]string{"a", "b", "c"}, &map[int]int{1: 1, 2: 2, 3: 3}, new(any([]any{true, true, true}))} {
		p, err := c.Plan(reflect.TypeOf(v).Elem())
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(v).Elem())
		if err := p.Decode(mustAppend(t, p, v), got.Interface(), false); err != nil || !reflect.DeepEqual(got.Interface(), v) {
			t.Errorf("%T: %v, %v", v, got.Elem(), err)
		}
	}
}
