package gym

import (
	"encoding/binary"
	"image"
	"testing"
)

func FuzzHello(f *testing.F) {
	const box = `{"kind":"Box","shape":[2],"dtype":"float32","low":"AACAvw==","high":"AACAPw=="}`
	for _, seed := range []string{
		`{"protocol":1,"observation":` + box + `,"action":{"kind":"Discrete","n":2,"start":-1}}`,
		`{"protocol":1,"observation":{"kind":"Dict","items":[{"key":"a","space":` + box + `},` +
			`{"key":"b","space":{"kind":"MultiBinary","n":4,"shape":[2,2]}}]},` +
			`"action":{"kind":"Tuple","items":[{"key":"0","space":{"kind":"MultiDiscrete","nvec":[2,3],"shape":[2]}}]}}`,
		`{"protocol":1,"observation":{"kind":"Box","shape":[4096,4096,4096]},"action":{"kind":"Discrete","n":-1}}`, `{`, `null`, `{"protocol":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHello(data)
		if err != nil {
			return
		}
		if space, parts, err := h.Observation.observations(); err == nil {
			at := 0
			for _, p := range parts {
				if p.From != at || p.To <= p.From {
					t.Errorf("part %+v begins at %d", p, at)
				}
				at = p.To
			}
			if at != space.Dim() || at > maxDim {
				t.Errorf("parts of %d values, a space of %d", at, space.Dim())
			}
			m := places(3, at, 1, 2, h.Observation.bytewise(), true)
			if m.Row < headBytes || m.Size < 2*3*m.Row+64 {
				t.Errorf("%+v", m)
			}
		}
		if space, err := h.Action.actions(); err == nil && (space.Dim() < 1 || space.Dim() > maxDim) {
			t.Errorf("actions of %d values", space.Dim())
		}
	})
}

func FuzzFault(f *testing.F) {
	f.Add([]byte(`{"index":1,"op":"step","code":"exception","type":"ValueError","message":"\u001b[2J","traceback":"a\nb\n"}`))
	f.Add([]byte(`{"index":-1,"code":"shape","text":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fault, err := decodeFault(data)
		if err == nil && len(fault.Error()) > 4*maxText {
			t.Errorf("%d bytes of text", len(fault.Error()))
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 1), 2), 1, 2, 3, 4, 5, 6))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		img, err := decodeFrame(data)
		if err == nil && (img.Rect.Empty() || 3*img.Rect.Dx()*img.Rect.Dy() != len(data)-8 || img.Rect.Min != (image.Point{})) {
			t.Errorf("a picture of %v from %d bytes", img.Rect, len(data))
		}
	})
}

func FuzzName(f *testing.F) {
	for _, name := range []string{"gym:CartPole-v1", "gym:a.b:C-v0", "x.py:f", "gym:", ":", ".py:"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		target, err := parseName(name)
		if err == nil && (!Matches(name) || (target.id == "") == (target.path == "")) {
			t.Errorf("%q is %+v", name, target)
		}
	})
}
