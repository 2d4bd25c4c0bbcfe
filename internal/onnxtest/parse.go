package onnxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of elements.
const (
	Float = 1
	Int64 = 7
)

// Tensor is an array in row-major order: of Floats, or of Ints if those are not nil.
type Tensor struct {
	Shape  []int
	Floats []float32
	Ints   []int64
}

// Type is Float or Int64.
func (t Tensor) Type() int {
	if t.Ints != nil {
		return Int64
	}
	return Float
}

// Info is a declared input or output.
type Info struct {
	Name string
	Type int
	// Dims are its dimensions; -1 is the number of rows, which is named N.
	Dims []int
}

// Node is an operator with its operands.
type Node struct {
	Name, Op string
	In, Out  []string
	Attrs    map[string]Attr
}

// Attr is the value of an attribute.
type Attr struct {
	Type  int // 1: Float, 2: Int, 7: Ints
	Float float32
	Int   int64
	Ints  []int64
}

// Model is an ONNX model.
type Model struct {
	IR, Opset         int64
	Producer, Version string
	Meta              map[string]string
	Inputs, Outputs   []Info
	Constants         map[string]Tensor
	Names             []string // of Constants, in their order
	Nodes             []Node
}

// Parse reads a model and checks it: see [Model.Check].
func Parse(data []byte) (*Model, error) {
	m := &Model{Meta: map[string]string{}, Constants: map[string]Tensor{}}
	graphs, sets := 0, 0
	err := fields(data, func(f field) error {
		switch f.number {
		case 1:
			return f.integer(&m.IR)
		case 2:
			return f.text(&m.Producer)
		case 3:
			return f.text(&m.Version)
		case 7:
			graphs++
			return f.message(m.graph)
		case 8:
			sets++
			return f.message(m.opset)
		case 14:
			return f.message(m.meta)
		}
		return f.unknown()
	})
	if err != nil {
		return nil, fmt.Errorf("onnx model: %w", err)
	}
	if graphs != 1 || sets != 1 {
		return nil, fmt.Errorf("onnx model with %d graphs and %d operator sets, want one each", graphs, sets)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("onnx model: %w", err)
	}
	return m, nil
}

// field is one field of a message.
type field struct {
	number protowire.Number
	wire   protowire.Type
	value  uint64 // of numbers
	bytes  []byte
}

// fields calls each for all fields of a message.
func fields(data []byte, each func(f field) error) error {
	for len(data) > 0 {
		var f field
		var n int
		f.number, f.wire, n = protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		switch f.wire {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(data)
			f.value = uint64(v)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		default:
			return fmt.Errorf("field %d has the wire type %d", f.number, f.wire)
		}
		if n < 0 {
			return fmt.Errorf("field %d: %w", f.number, protowire.ParseError(n))
		}
		data = data[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

func (f field) unknown() error { return fmt.Errorf("unknown field %d", f.number) }

func (f field) want(wire protowire.Type) error {
	if f.wire != wire {
		return fmt.Errorf("field %d has the wire type %d, want %d", f.number, f.wire, wire)
	}
	return nil
}

func (f field) integer(dst *int64) error {
	*dst = int64(f.value) //nolint:gosec // the same bits
	return f.want(protowire.VarintType)
}

func (f field) text(dst *string) error {
	*dst = string(f.bytes)
	return f.want(protowire.BytesType)
}

func (f field) message(parse func(data []byte) error) error {
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	return parse(f.bytes)
}

func (m *Model) opset(data []byte) error {
	var domain string
	err := fields(data, func(f field) error {
		switch f.number {
		case 1:
			return f.text(&domain)
		case 2:
			return f.integer(&m.Opset)
		}
		return f.unknown()
	})
	if err == nil && domain != "" {
		err = fmt.Errorf("operators of the domain %q", domain)
	}
	return err
}

func (m *Model) meta(data []byte) error {
	var key, value string
	err := fields(data, func(f field) error {
		switch f.number {
		case 1:
			return f.text(&key)
		case 2:
			return f.text(&value)
		}
		return f.unknown()
	})
	if _, twice := m.Meta[key]; err == nil && (twice || key == "") {
		err = fmt.Errorf("the metadata key %q is empty or there twice", key)
	}
	m.Meta[key] = value
	return err
}

func (m *Model) graph(data []byte) error {
	var name string
	return fields(data, func(f field) error {
		switch f.number {
		case 1:
			return f.message(m.node)
		case 2:
			return f.text(&name)
		case 5:
			return f.message(m.constant)
		case 11:
			return f.message(func(data []byte) error { return info(data, &m.Inputs) })
		case 12:
			return f.message(func(data []byte) error { return info(data, &m.Outputs) })
		}
		return f.unknown()
	})
}

func (m *Model) node(data []byte) error {
	n := Node{Attrs: map[string]Attr{}}
	err := fields(data, func(f field) error {
		var s string
		switch f.number {
		case 1:
			n.In = append(n.In, string(f.bytes))
		case 2:
			n.Out = append(n.Out, string(f.bytes))
		case 3:
			return f.text(&n.Name)
		case 4:
			return f.text(&n.Op)
		case 5:
			return f.message(n.attr)
		default:
			return f.unknown()
		}
		return f.text(&s)
	})
	if err != nil {
		return fmt.Errorf("node %.100q: %w", n.Name, err)
	}
	m.Nodes = append(m.Nodes, n)
	return nil
}

func (n *Node) attr(data []byte) error {
	var name string
	var a Attr
	values := [8]bool{} // by type
	err := fields(data, func(f field) error {
		var v int64
		switch f.number {
		case 1:
			return f.text(&name)
		case 2:
			a.Float, values[1] = math.Float32frombits(uint32(f.value)), true //nolint:gosec // it has 32 bits
			return f.want(protowire.Fixed32Type)
		case 3:
			values[2] = true
			return f.integer(&a.Int)
		case 8:
			values[7] = true
			err := f.integer(&v)
			a.Ints = append(a.Ints, v)
			return err
		case 20:
			err := f.integer(&v)
			a.Type = int(v)
			return err
		}
		return f.unknown()
	})
	if err != nil {
		return err
	}
	count := 0
	for _, is := range values {
		if is {
			count++
		}
	}
	if _, twice := n.Attrs[name]; twice || name == "" || count != 1 || a.Type < 1 || a.Type > 7 || !values[a.Type] {
		return fmt.Errorf("attribute %.100q of type %d occurs twice, or does not have one value of its type", name, a.Type)
	}
	n.Attrs[name] = a
	return nil
}

func info(data []byte, dst *[]Info) error {
	var i Info
	err := fields(data, func(f field) error {
		switch f.number {
		case 1:
			return f.text(&i.Name)
		case 2:
			return f.message(i.kind)
		}
		return f.unknown()
	})
	if err != nil {
		return fmt.Errorf("value %.100q: %w", i.Name, err)
	}
	*dst = append(*dst, i)
	return nil
}

// kind is a TypeProto.
func (i *Info) kind(data []byte) error {
	return fields(data, func(f field) error {
		if f.number != 1 {
			return f.unknown()
		}
		return f.message(func(data []byte) error {
			return fields(data, func(f field) error {
				switch f.number {
				case 1:
					i.Type = int(f.value) //nolint:gosec // compared with types that are known
					return f.want(protowire.VarintType)
				case 2:
					return f.message(i.dims)
				}
				return f.unknown()
			})
		})
	})
}

// dims is a TensorShapeProto.
func (i *Info) dims(data []byte) error {
	return fields(data, func(f field) error {
		if f.number != 1 {
			return f.unknown()
		}
		return f.message(func(data []byte) error {
			return fields(data, func(f field) error {
				switch {
				case f.number == 1 && f.value > 0 && f.value <= maxElements:
					i.Dims = append(i.Dims, int(f.value))
					return f.want(protowire.VarintType)
				case f.number == 2 && string(f.bytes) == "N" && len(i.Dims) == 0:
					i.Dims = append(i.Dims, -1)
					return f.want(protowire.BytesType)
				}
				return errors.New("a dimension is neither a number nor, as the first one, N")
			})
		})
	})
}

// constant is a TensorProto.
func (m *Model) constant(data []byte) error {
	var name string
	var kind int64
	var shape []int
	var raw []byte
	err := fields(data, func(f field) error {
		switch f.number {
		case 1:
			if f.value > maxElements {
				return fmt.Errorf("a dimension of %d", f.value)
			}
			shape = append(shape, int(f.value))
			return f.want(protowire.VarintType)
		case 2:
			return f.integer(&kind)
		case 8:
			return f.text(&name)
		case 9:
			raw = f.bytes
			return f.want(protowire.BytesType)
		}
		return f.unknown()
	})
	if err != nil {
		return fmt.Errorf("tensor %.100q: %w", name, err)
	}
	t := Tensor{Shape: shape}
	width := map[int64]int{Float: 4, Int64: 8}[kind]
	if n, ok := elements(shape); !ok || width == 0 || n*width != len(raw) {
		return fmt.Errorf("tensor %.100q of type %d and shape %v has %d bytes", name, kind, shape, len(raw))
	}
	if kind == Int64 {
		t.Ints = []int64{}
	}
	for ; len(raw) > 0; raw = raw[width:] {
		if kind == Float {
			t.Floats = append(t.Floats, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		} else {
			t.Ints = append(t.Ints, int64(binary.LittleEndian.Uint64(raw))) //nolint:gosec // the same bits
		}
	}
	if _, twice := m.Constants[name]; twice || name == "" {
		return fmt.Errorf("the tensor name %.100q is empty or there twice", name)
	}
	m.Constants[name] = t
	m.Names = append(m.Names, name)
	return nil
}
