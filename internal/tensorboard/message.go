package tensorboard

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the fields, by message.
const (
	eventWallTime    protowire.Number = 1
	eventStep        protowire.Number = 2
	eventFileVersion protowire.Number = 3
	eventSummary     protowire.Number = 5
	eventSessionLog  protowire.Number = 7

	sessionLogStatus protowire.Number = 1

	summaryValue protowire.Number = 1

	valueTag      protowire.Number = 1
	valueSimple   protowire.Number = 2
	valueHisto    protowire.Number = 5
	valueTensor   protowire.Number = 8
	valueMetadata protowire.Number = 9

	metadataPlugin protowire.Number = 1
	pluginName     protowire.Number = 1
	pluginContent  protowire.Number = 2

	hparamsExperiment protowire.Number = 2
	hparamsStart      protowire.Number = 3
	hparamsEnd        protowire.Number = 4
)

// sessionLogStart is the status START of a SessionLog.
const sessionLogStart = 1

// The appenders of one field, each of which returns the longer dst.

func appendMessage(dst []byte, n protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, n, protowire.BytesType), m)
}

func appendText(dst []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, n, protowire.BytesType), s)
}

func appendVarint(dst []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, n, protowire.VarintType), v)
}

func appendDouble(dst []byte, n protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(dst, n, protowire.Fixed64Type), math.Float64bits(v))
}

func appendFloat(dst []byte, n protowire.Number, v float32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(dst, n, protowire.Fixed32Type), math.Float32bits(v))
}

func appendDoubles(dst []byte, n protowire.Number, all []float64) []byte {
	dst = protowire.AppendVarint(protowire.AppendTag(dst, n, protowire.BytesType), uint64(8*len(all)))
	for _, v := range all {
		dst = protowire.AppendFixed64(dst, math.Float64bits(v))
	}
	return dst
}

// event returns an Event, whose content is one field.
func event(wall float64, step int64, content []byte) []byte {
	b := appendDouble(nil, eventWallTime, wall)
	if step != 0 {
		b = appendVarint(b, eventStep, uint64(step)) //nolint:gosec // int64 is a varint of its two's complement
	}
	return append(b, content...)
}

func fileVersion() []byte { return appendText(nil, eventFileVersion, "brain.Event:2") }

func sessionStart() []byte {
	return appendMessage(nil, eventSessionLog, appendVarint(nil, sessionLogStatus, sessionLogStart))
}

func summary(values []byte) []byte { return appendMessage(nil, eventSummary, values) }

func scalar(s Scalar) []byte {
	return appendFloat(appendText(nil, valueTag, s.Tag), valueSimple, float32(s.Value))
}

// buckets is how many a histogram has.
const buckets = 30

type histogram struct {
	min, max, num, sum, squares float64
	limits, counts              []float64 // right edges; values up to that
}

// newHistogram sorts the finite values into buckets, and reports whether there are any.
func newHistogram(values []float32) (h histogram, ok bool) {
	h.min, h.max = math.Inf(1), math.Inf(-1)
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	for _, f := range values {
		v := float64(f)
		if !finite(v) {
			continue
		}
		h.min, h.max = min(h.min, v), max(h.max, v)
		h.num, h.sum, h.squares = h.num+1, h.sum+v, h.squares+v*v
	}
	if h.num == 0 {
		return h, false
	}
	if h.min == h.max {
		h.limits, h.counts = []float64{h.max}, []float64{h.num}
		return h, true
	}
	width := (h.max - h.min) / buckets
	h.limits, h.counts = make([]float64, buckets), make([]float64, buckets)
	for i := range h.limits {
		h.limits[i] = h.min + width*float64(i+1)
	}
	h.limits[buckets-1] = h.max
	for _, f := range values {
		if v := float64(f); finite(v) {
			h.counts[min(int((v-h.min)/width), buckets-1)]++
		}
	}
	return h, true
}

// value returns the histogram as a Summary.Value.
func (h histogram) value(tag string) []byte {
	var b []byte
	for i, v := range []float64{h.min, h.max, h.num, h.sum, h.squares} {
		b = appendDouble(b, protowire.Number(i+1), v)
	}
	b = appendDoubles(appendDoubles(b, 6, h.limits), 7, h.counts)
	return appendMessage(appendText(nil, valueTag, tag), valueHisto, b)
}

// Session is the data of a run for TensorBoard's HPARAMS tab.
type Session struct {
	// HParams are the hyperparameters by name: texts, booleans and numbers.
	HParams map[string]any
	Metrics []string // tags of the scalars by which runs are compared
	Group   string   // of runs with the same hyperparameters, such as other seeds; "": the run is one by itself
}

// Status is how a run ended.
type Status uint8

// The states of a run, by their numbers in TensorBoard.
const (
	Success Status = 1
	Failure Status = 2
)

// The data types of hyperparameters.
const (
	typeString  = 1
	typeBool    = 2
	typeFloat64 = 3
)

// values returns the Summary.Values of the experiment and of the start of the session.
func (s *Session) values(now float64) ([]byte, error) {
	var experiment, start []byte
	experiment = appendDouble(experiment, 3, now)
	for _, name := range slices.Sorted(maps.Keys(s.HParams)) {
		if err := checkTag(name); err != nil {
			return nil, err
		}
		kind, value, err := hparam(s.HParams[name])
		if err != nil {
			return nil, fmt.Errorf("tensorboard: hyperparameter %s: %w", name, err)
		}
		experiment = appendMessage(experiment, 4, appendVarint(appendText(nil, 1, name), 4, kind))
		start = appendMessage(start, 1, appendMessage(appendText(nil, 1, name), 2, value))
	}
	for _, tag := range s.Metrics {
		if err := checkTag(tag); err != nil {
			return nil, err
		}
		experiment = appendMessage(experiment, 5, appendMessage(nil, 1, appendText(nil, 2, tag)))
	}
	if s.Group != "" {
		start = appendText(start, 4, s.Group)
	}
	start = appendDouble(start, 5, now)
	values := appendMessage(nil, summaryValue, hparams("_hparams_/experiment", hparamsExperiment, experiment))
	return appendMessage(values, summaryValue, hparams("_hparams_/session_start_info", hparamsStart, start)), nil
}

func sessionEnd(s Status, now float64) []byte {
	end := appendDouble(appendVarint(nil, 1, uint64(s)), 2, now)
	return appendMessage(nil, summaryValue, hparams("_hparams_/session_end_info", hparamsEnd, end))
}

// hparams returns a Summary.Value of the hparams plugin: its content rests in the metadata, beside a tensor of one zero.
func hparams(tag string, field protowire.Number, content []byte) []byte {
	plugin := appendText(nil, pluginName, "hparams")
	plugin = appendMessage(plugin, pluginContent, appendMessage(nil, field, content))
	const float = 1
	shape := appendMessage(nil, 2, appendVarint(nil, 1, 1)) // one dimension of size 1
	tensor := appendMessage(appendVarint(nil, 1, float), 2, shape)
	tensor = appendMessage(tensor, 5, []byte{0, 0, 0, 0})
	v := appendMessage(appendText(nil, valueTag, tag), valueTensor, tensor)
	return appendMessage(v, valueMetadata, appendMessage(nil, metadataPlugin, plugin))
}

// hparam returns a hyperparameter as a google.protobuf.Value, with its data type.
func hparam(v any) (kind uint64, value []byte, err error) {
	r := reflect.ValueOf(v)
	switch {
	case !r.IsValid():
	case r.Kind() == reflect.String:
		if err := checkText(r.String()); err != nil {
			return 0, nil, err
		}
		return typeString, appendText(nil, 3, r.String()), nil
	case r.Kind() == reflect.Bool:
		return typeBool, appendVarint(nil, 4, protowire.EncodeBool(r.Bool())), nil
	case r.CanInt():
		return typeFloat64, appendDouble(nil, 2, float64(r.Int())), nil
	case r.CanUint():
		return typeFloat64, appendDouble(nil, 2, float64(r.Uint())), nil
	case r.CanFloat():
		if f := r.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, nil, fmt.Errorf("%v is not finite", f)
		}
		return typeFloat64, appendDouble(nil, 2, r.Float()), nil
	}
	return 0, nil, fmt.Errorf("%T is no text, boolean or number: give its text", v)
}
