package placement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Spec is a platform spec: what each task of the job is, where flags, which
// speak for all nodes, do not reach. Its JSON form is
//
//	{"tasks": [
//	  {"labels": "league,collect", "node_ids": 10},
//	  {"labels": ["learn"], "node_ids": "20,21", "parallel_workers": 2, "attach_to": "$node.10"}
//	]}
//
// A list is an array or a text with commas. With several launchers task k is
// what launcher k runs; a single launcher runs all tasks.
type Spec struct {
	Tasks []TaskSpec
}

// TaskSpec is one task of a Spec. Fields that it leaves out follow from the flags.
type TaskSpec struct {
	Labels   string // labels besides those of the flags
	NodeIDs  string // as Flags.NodeIDs, for the nodes of this task
	Ports    string // as Flags.Ports, for the nodes of this task
	Address  string // as Flags.Address
	AttachTo string // addresses besides those of the flags
	Workers  int    // nodes of this task; 0: Flags.Workers
}

// ParseSpec reads a platform spec from JSON. The error joins all faults, each
// with its path, such as tasks[1].labels; an unknown key is a fault.
func ParseSpec(data []byte) (*Spec, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var root any
	if err := dec.Decode(&root); err != nil {
		return nil, fmt.Errorf("platform spec: not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("platform spec: more than one JSON value")
	}
	p := specParser{}
	spec := p.spec(root)
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	return spec, nil
}

type specParser struct {
	faults []error
}

func (p *specParser) faultf(path, format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf("platform spec: %s: %s", path, fmt.Sprintf(format, args...)))
}

// object checks v to be an object that has only the known keys, and returns it.
func (p *specParser) object(path string, v any, known ...string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		p.faultf(path, "want an object, got %s", kindOf(v))
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, key) {
			at := key
			if path != "(top)" {
				at = path + "." + key
			}
			p.faultf(at, "unknown key; known are %s", strings.Join(known, ", "))
		}
	}
	return m
}

func (p *specParser) spec(root any) *Spec {
	m := p.object("(top)", root, "tasks")
	if m == nil || len(p.faults) > 0 {
		return nil
	}
	tasks, ok := m["tasks"].([]any)
	if !ok || len(tasks) == 0 {
		p.faultf("tasks", "want an array of at least one task")
		return nil
	}
	spec := &Spec{}
	for i, v := range tasks {
		spec.Tasks = append(spec.Tasks, p.task(fmt.Sprintf("tasks[%d]", i), v))
	}
	return spec
}

func (p *specParser) task(path string, v any) TaskSpec {
	m := p.object(path, v, "labels", "node_ids", "ports", "address", "attach_to", "parallel_workers")
	t := TaskSpec{
		Labels:   p.list(path, m, "labels"),
		NodeIDs:  p.list(path, m, "node_ids"),
		Ports:    p.list(path, m, "ports"),
		AttachTo: p.list(path, m, "attach_to"),
	}
	if a, ok := m["address"]; ok {
		if t.Address, ok = a.(string); !ok {
			p.faultf(path+".address", "want a text, got %s", kindOf(a))
		}
	}
	if w, ok := m["parallel_workers"]; ok {
		n, _ := w.(json.Number)
		i, err := n.Int64()
		if err != nil || i < 1 || i > maxNodes {
			p.faultf(path+".parallel_workers", "want a number from 1 to %d", maxNodes)
		}
		t.Workers = int(i)
	}
	return t
}

// list is the comma-separated form of a text, a number or an array of them.
func (p *specParser) list(path string, m map[string]any, key string) string {
	v, ok := m[key]
	if !ok {
		return ""
	}
	items, many := v.([]any)
	if !many {
		items = []any{v}
	}
	var out []string
	for i, item := range items {
		switch item := item.(type) {
		case string:
			out = append(out, item)
		case json.Number:
			out = append(out, item.String())
		default:
			at := path + "." + key
			if many {
				at = fmt.Sprintf("%s[%d]", at, i)
			}
			p.faultf(at, "want a text or a number, got %s", kindOf(item))
		}
	}
	return strings.Join(out, ",")
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a text"
	case bool:
		return "true or false"
	default:
		return "a number"
	}
}
