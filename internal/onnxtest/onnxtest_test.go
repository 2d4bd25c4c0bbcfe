package onnxtest_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/onnxtest"
	"github.com/ditask/ditask/internal/pythontest"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/qrdqn"
)

// recurrent and quantiles are models that package export has written.
func recurrent(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	p := ppo.New(ppo.Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}, Hidden: []int{2}, LSTM: 2, Length: 1})
	if err := export.ONNX(&out, p, export.Meta{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func quantiles(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	p := qrdqn.New(qrdqn.Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}, Hidden: []int{2}, Quantiles: 2, Dueling: true})
	if err := export.ONNX(&out, p, export.Meta{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stride is from one tried byte to the next: all are tried, except for a few in short mode.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// TestTruncatedFileIsAnError, wherever it is cut.
func TestTruncatedFileIsAnError(t *testing.T) {
	for name, file := range map[string][]byte{"recurrent": recurrent(t), "quantiles": quantiles(t)} {
		if _, err := onnxtest.Parse(file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := 0; n < len(file); n += stride() {
			if _, err := onnxtest.Parse(file[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes pass", name, n, len(file))
			}
		}
	}
}

// TestChangedByteIsSeen: it is an error, or something else than before is read.
func TestChangedByteIsSeen(t *testing.T) {
	file := recurrent(t)
	whole, err := onnxtest.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	tried, faults := 0, 0
	for i := 0; i < len(file); i += stride() {
		tried++
		changed := slices.Clone(file)
		changed[i] ^= 0x41
		m, err := onnxtest.Parse(changed)
		if err != nil {
			faults++
			continue
		}
		// The names of the graph and of nodes are read by people only.
		node, graph := file[max(0, i-60):i+1], file[max(0, i-8):min(len(file), i+8)]
		if same(m, whole) && !bytes.Contains(node, []byte("node:")) && !bytes.Contains(graph, []byte("policy")) {
			t.Errorf("byte %d of %d changes nothing", i, len(file))
		}
	}
	if faults < tried/2 {
		t.Errorf("%d of %d changed bytes are an error, want most", faults, tried)
	}
}

// same reports whether two models are equal, bit for bit.
func same(a, b *onnxtest.Model) bool {
	text := func(m *onnxtest.Model) string {
		c := *m
		c.Constants = nil
		out := fmt.Sprintf("%+v", c)
		for _, name := range m.Names {
			t := m.Constants[name]
			out += fmt.Sprint(t.Shape, t.Ints)
			for _, x := range t.Floats {
				out += fmt.Sprint(" ", math.Float32bits(x))
			}
		}
		return out
	}
	return text(a) == text(b)
}

// builder writes models by hand, with protowire.
type builder struct{ bytes []byte }

func (b *builder) number(field protowire.Number, v int) {
	b.bytes = protowire.AppendVarint(protowire.AppendTag(b.bytes, field, protowire.VarintType), uint64(v))
}

func (b *builder) text(field protowire.Number, v string) {
	b.bytes = protowire.AppendString(protowire.AppendTag(b.bytes, field, protowire.BytesType), v)
}

func (b *builder) part(field protowire.Number, write func(b *builder)) {
	var inner builder
	write(&inner)
	b.bytes = protowire.AppendBytes(protowire.AppendTag(b.bytes, field, protowire.BytesType), inner.bytes)
}

// value declares an input or an output of N rows of width elements.
func (b *builder) value(field protowire.Number, name string, kind, width int) {
	b.part(field, func(b *builder) {
		b.text(1, name)
		b.part(2, func(b *builder) {
			b.part(1, func(b *builder) {
				b.number(1, kind)
				b.part(2, func(b *builder) {
					b.part(1, func(b *builder) { b.text(2, "N") })
					b.part(1, func(b *builder) { b.number(1, width) })
				})
			})
		})
	})
}

func (b *builder) node(op, out string, in ...string) {
	b.part(1, func(b *builder) {
		for _, name := range in {
			b.text(1, name)
		}
		b.text(2, out)
		b.text(4, op)
	})
}

// model returns a model whose graph is what write writes, behind the input x of two elements.
func model(ir, opset int, domain string, write func(b *builder)) []byte {
	var b builder
	b.number(1, ir)
	b.part(7, func(b *builder) {
		b.value(11, "x", onnxtest.Float, 2)
		write(b)
	})
	b.part(8, func(b *builder) {
		b.text(1, domain)
		b.number(2, opset)
	})
	for _, key := range []string{"observation_space", "action_space", "updates", "ditask_version"} {
		b.part(14, func(b *builder) {
			b.text(1, key)
			b.text(2, "{}")
		})
	}
	return b.bytes
}

// TestFaultsAreFound in models that are well-formed messages.
func TestFaultsAreFound(t *testing.T) {
	good := func(b *builder) {
		b.node("Tanh", "y", "x")
		b.value(12, "y", onnxtest.Float, 2)
	}
	if _, err := onnxtest.Parse(model(8, 17, "", good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"another IR", "IR version 9 and opset 17", model(9, 17, "", good)},
		{"another opset", "IR version 8 and opset 18", model(8, 18, "", good)},
		{"another domain", `operators of the domain "ai.onnx.ml"`, model(8, 17, "ai.onnx.ml", good)},
		{"two graphs", "2 graphs", append(model(8, 17, "", good), 7<<3|2, 0)}, // an empty one
		{"not a message", "onnx model: ", []byte("PK\x03\x04 something else")},
		{"nothing", "0 graphs", nil},
		{"no outputs", "no inputs or no outputs", model(8, 17, "", func(b *builder) { b.node("Tanh", "y", "x") })},
		{"an order that is not topological", `reads "a", which is not defined before it`, model(8, 17, "", func(b *builder) {
			b.node("Tanh", "y", "a")
			b.node("Tanh", "a", "x")
			b.value(12, "y", onnxtest.Float, 2)
		})},
		{"a result twice", `"y" is empty or defined twice`, model(8, 17, "", func(b *builder) {
			b.node("Tanh", "y", "x")
			b.node("Tanh", "y", "x")
			b.value(12, "y", onnxtest.Float, 2)
		})},
		{"an input that is defined again", `"x" is empty or defined twice`, model(8, 17, "", func(b *builder) {
			b.node("Tanh", "x", "x")
			b.value(12, "x", onnxtest.Float, 2)
		})},
		{"an output that is not there", `the output "z" is not defined`, model(8, 17, "", func(b *builder) {
			b.node("Tanh", "y", "x")
			b.value(12, "z", onnxtest.Float, 2)
		})},
		{"an unknown operator", `"Foo", has 1 operands`, model(8, 17, "", func(b *builder) {
			b.node("Foo", "y", "x")
			b.value(12, "y", onnxtest.Float, 2)
		})},
		{"too many operands", `"Tanh", has 2 operands`, model(8, 17, "", func(b *builder) {
			b.node("Tanh", "y", "x", "x")
			b.value(12, "y", onnxtest.Float, 2)
		})},
		{"another shape", "y is of type 1 and shape [1 2], declared is 1 and [-1 3]", model(8, 17, "", func(b *builder) {
			b.node("Tanh", "y", "x")
			b.value(12, "y", onnxtest.Float, 3)
		})},
		{"another type", "declared is 7", model(8, 17, "", func(b *builder) {
			b.node("Tanh", "y", "x")
			b.value(12, "y", onnxtest.Int64, 2)
		})},
		{"an unknown attribute", `has the attribute "alpha" of type 2`, model(8, 17, "", func(b *builder) {
			b.part(1, func(b *builder) {
				b.text(1, "x")
				b.text(2, "y")
				b.text(4, "Tanh")
				b.part(5, func(b *builder) {
					b.text(1, "alpha")
					b.number(3, 1)
					b.number(20, 2)
				})
			})
			b.value(12, "y", onnxtest.Float, 2)
		})},
		{"a tensor of other bytes", `tensor "w" of type 1 and shape [2] has 7 bytes`, model(8, 17, "", func(b *builder) {
			b.part(5, func(b *builder) {
				b.number(1, 2)
				b.number(2, 1)
				b.text(8, "w")
				b.text(9, "1234567")
			})
			good(b)
		})},
		{"a tensor that nothing reads", `the tensor "w" is not used`, model(8, 17, "", func(b *builder) {
			b.part(5, func(b *builder) {
				b.number(1, 2)
				b.number(2, 1)
				b.text(8, "w")
				b.text(9, "12345678")
			})
			good(b)
		})},
	} {
		if _, err := onnxtest.Parse(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestRunChecksInputs.
func TestRunChecksInputs(t *testing.T) {
	m, err := onnxtest.Parse(model(8, 17, "", func(b *builder) {
		b.node("Relu", "y", "x")
		b.value(12, "y", onnxtest.Float, 2)
	}))
	if err != nil {
		t.Fatal(err)
	}
	x := onnxtest.Tensor{Shape: []int{2, 2}, Floats: []float32{1, -2, 3, -4}}
	if out, err := m.Run(map[string]onnxtest.Tensor{"x": x}); err != nil || !slices.Equal(out["y"].Floats, []float32{1, 0, 3, 0}) {
		t.Errorf("%v, %v", out, err)
	}
	for want, in := range map[string]map[string]onnxtest.Tensor{
		"the input x is missing": nil,
		"2 inputs, want 1":       {"x": x, "z": x},
		"declared is 1":          {"x": {Shape: []int{4, 1}, Floats: x.Floats}},
		"declared is 1 and":      {"x": {Shape: []int{2, 2}, Floats: x.Floats[:3]}},
	} {
		if _, err := m.Run(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPythonRefusesWhatIsCut gives a model without its second half to the reader in Python.
func TestPythonRefusesWhatIsCut(t *testing.T) {
	leak.Check(t)
	file := recurrent(t)
	path := filepath.Join(t.TempDir(), "cut.onnx")
	if err := os.WriteFile(path, file[:len(file)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	pythontest.Program(t)
	inner := &failing{TB: t}
	func() {
		defer func() { _ = recover() }() // of failing
		onnxtest.Python(inner, []onnxtest.Request{{Path: path}})
	}()
	if !strings.Contains(inner.text, "Error") {
		t.Errorf("report %q, want an error", inner.text)
	}
}

// failing is a test whose failure is an outcome.
type failing struct {
	testing.TB

	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic("failed")
}

// FuzzParse: what is read is consistent, and runs or is an error; nothing panics.
func FuzzParse(f *testing.F) {
	f.Add(recurrent(f))
	f.Add(quantiles(f))
	f.Add(model(8, 17, "", func(b *builder) {
		b.node("Tanh", "y", "x")
		b.value(12, "y", onnxtest.Float, 2)
	}))
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := onnxtest.Parse(file)
		if err != nil {
			return
		}
		if err := m.Check(); err != nil {
			t.Errorf("what was read does not pass again: %v", err)
		}
	})
}
