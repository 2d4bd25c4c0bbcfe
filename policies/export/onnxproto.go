package export

import (
	"encoding/binary"
	"math"
)

// message is a message of protocol buffers as it is built: fields with their numbers, in the order of calls.
// It supports only the fields that a ModelProto of ONNX needs.
type message []byte

const (
	wireVarint = 0
	wireBytes  = 2
	wireFixed4 = 5
)

func (m *message) key(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field)<<3|uint64(wire)) }

// number adds an integer.
func (m *message) number(field, v int) {
	m.key(field, wireVarint)
	*m = binary.AppendUvarint(*m, uint64(int64(v)))
}

// float adds a float.
func (m *message) float(field int, v float32) {
	m.key(field, wireFixed4)
	*m = binary.LittleEndian.AppendUint32(*m, math.Float32bits(v))
}

// text adds a string.
func (m *message) text(field int, v string) {
	m.key(field, wireBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(v))), v...)
}

// message adds a message, or bytes.
func (m *message) message(field int, v message) {
	m.key(field, wireBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(v))), v...)
}

// Types of elements in TensorProto.DataType.
const (
	typeFloat = 1
	typeInt64 = 7
)

// tensorProto returns a TensorProto of that many elements, whose bytes are raw.
func tensorProto(name string, elements int, shape []int, raw []byte) message {
	var m message
	for _, d := range shape {
		m.number(1, d) // dims
	}
	m.number(2, elements) // data_type
	m.text(8, name)
	m.message(9, raw) // raw_data, little-endian
	return m
}

// floatTensor returns a TensorProto of float32.
func floatTensor(name string, data []float32, shape ...int) message {
	raw := make([]byte, 0, 4*len(data))
	for _, v := range data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return tensorProto(name, typeFloat, shape, raw)
}

// intTensor returns a TensorProto of int64.
func intTensor(name string, data []int, shape ...int) message {
	raw := make([]byte, 0, 8*len(data))
	for _, v := range data {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(int64(v)))
	}
	return tensorProto(name, typeInt64, shape, raw)
}

// Types of attributes in AttributeProto.AttributeType.
const (
	attributeFloat = 1
	attributeInt   = 2
	attributeInts  = 7
)

// attribute is an AttributeProto.
type attribute message

func intAttribute(name string, v int) attribute {
	var m message
	m.text(1, name)
	m.number(3, v) // i
	m.number(20, attributeInt)
	return attribute(m)
}

func intsAttribute(name string, v ...int) attribute {
	var m message
	m.text(1, name)
	for _, x := range v {
		m.number(8, x) // ints
	}
	m.number(20, attributeInts)
	return attribute(m)
}

func floatAttribute(name string, v float32) attribute {
	var m message
	m.text(1, name)
	m.float(2, v) // f
	m.number(20, attributeFloat)
	return attribute(m)
}

// valueInfo returns the ValueInfoProto of a batch of rows.
func valueInfo(name string, elements int, row []int) message {
	var shape, n message
	n.text(2, "N") // dim_param
	shape.message(1, n)
	for _, d := range row {
		var dim message
		dim.number(1, d) // dim_value
		shape.message(1, dim)
	}
	var tensor, kind, m message
	tensor.number(1, elements) // elem_type
	tensor.message(2, shape)
	kind.message(1, tensor) // tensor_type
	m.text(1, name)
	m.message(2, kind)
	return m
}
