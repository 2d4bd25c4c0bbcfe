package gym

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/printable"
)

// Part is a part of a flat observation: the values From (inclusive) to To.
type Part struct {
	// Name is that of a part of a Dict, or the number of one of a Tuple; of nested ones, all names
	// with slashes between them. It is empty if the observation has one part.
	Name     string
	From, To int
	// Kind is Gymnasium's name of the part's space: Box, Discrete, MultiDiscrete or MultiBinary.
	Kind string
	// Shape is that of the part in the environment. It is nil for a Discrete.
	Shape []int
	// N is how many numbers a Discrete, or each value of a MultiDiscrete, can have. It is nil for other kinds.
	N     []int
	Start int // the first number of a Discrete
}

// The bounds of a space that a process describes.
const (
	maxDim   = 1 << 24 // values of an observation or an action
	maxDepth = 16      // Dicts and Tuples inside each other
	maxWhole = 1 << 24 // where float32 is exact
)

// space is a space as a process describes it.
type space struct {
	Kind      string
	Shape     []int
	DType     string
	Low, High []byte // float32 in the machine's byte order: one for each value, or one for all
	N, Start  int
	NVec      []int
	Items     []item
}

type item struct {
	Key   string
	Space *space
}

// leaf is a space without parts, and its name.
type leaf struct {
	*space
	name string
}

// hello is how a process answers the first message.
type hello struct {
	Protocol    int
	Python      string
	Executable  string
	NumPy       string
	FPS         int // pictures a second; 0: not known
	Observation *space
	Action      *space
}

func decodeHello(payload []byte) (*hello, error) {
	var h hello
	if err := json.Unmarshal(payload, &h); err != nil {
		return nil, fmt.Errorf("decode the spaces: %w", err)
	}
	if h.Protocol != protocol {
		return nil, fmt.Errorf("the process speaks protocol %d, not %d", h.Protocol, protocol)
	}
	if h.Observation == nil || h.Action == nil {
		return nil, errors.New("the process sent no spaces")
	}
	h.Python, h.Executable, h.NumPy = printable.Text(h.Python), printable.Text(h.Executable), printable.Text(h.NumPy)
	return &h, nil
}

// leaves appends the parts of a space, after it has checked them.
func (s *space) leaves(dst []leaf, name string, depth int) ([]leaf, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d spaces inside each other", maxDepth)
	}
	if s.Kind != "Dict" && s.Kind != "Tuple" {
		err := s.check()
		if err != nil && name != "" {
			err = fmt.Errorf("part %q: %w", name, err)
		}
		return append(dst, leaf{s, name}), err
	}
	if len(s.Items) == 0 && depth == 0 {
		return nil, fmt.Errorf("a %s without parts", s.Kind)
	}
	for _, it := range s.Items {
		inner := printable.Cut(it.Key, 128)
		if name != "" {
			inner = name + "/" + inner
		}
		if it.Space == nil {
			return nil, fmt.Errorf("part %q has no space", inner)
		}
		var err error
		if dst, err = it.Space.leaves(dst, inner, depth+1); err != nil {
			return nil, err
		}
		if len(dst) > maxDim {
			return nil, fmt.Errorf("more than %d parts", maxDim)
		}
	}
	return dst, nil
}

// check reports the faults of a space without parts.
func (s *space) check() error {
	size := 1
	for _, n := range s.Shape {
		if n <= 0 || n > maxDim || size > maxDim/n {
			return fmt.Errorf("a %s of shape %v: want 1 to %d values", s.Kind, s.Shape, maxDim)
		}
		size *= n
	}
	switch s.Kind {
	case "Box":
		return s.checkBounds(size)
	case "Discrete":
		if s.N < 1 || s.N > maxWhole || s.Start < -maxWhole || s.Start+s.N > maxWhole {
			return fmt.Errorf("Discrete(%d, start=%d): want numbers between -2^24 and 2^24", s.N, s.Start)
		}
	case "MultiDiscrete":
		if len(s.NVec) == 0 || len(s.NVec) != size {
			return fmt.Errorf("a MultiDiscrete of %d values and shape %v", len(s.NVec), s.Shape)
		}
		total := 0
		for _, n := range s.NVec {
			if total += n; n < 1 || n > maxWhole || total > maxDim {
				return fmt.Errorf("a MultiDiscrete with a value of %d numbers: want 1 to 2^24 in all", n)
			}
		}
	case "MultiBinary":
		if s.N < 1 || s.N != size {
			return fmt.Errorf("a MultiBinary of %d values and shape %v", s.N, s.Shape)
		}
	default:
		return fmt.Errorf("a space of the kind %q, which is not supported", printable.Cut(s.Kind, 64))
	}
	return nil
}

func (s *space) checkBounds(size int) error {
	for _, b := range [][]byte{s.Low, s.High} {
		if n := len(b); n != 4 && n != 4*size {
			return fmt.Errorf("a Box of %d values with %d bytes of bounds", size, n)
		}
	}
	for i := range max(len(s.Low), len(s.High)) / 4 {
		if low, high := bound(s.Low, i), bound(s.High, i); !(low <= high) {
			return fmt.Errorf("a Box with the bounds [%v, %v] at value %d", low, high, i)
		}
	}
	return nil
}

// bound is a bound of value i.
func bound(b []byte, i int) float32 {
	if len(b) == 4 {
		i = 0
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

// size is how many values a space without parts has in a flat observation, where the numbers of
// discrete ones are rows with a single 1.
func (s *space) size() int {
	switch s.Kind {
	case "Discrete", "MultiBinary":
		return s.N
	case "MultiDiscrete":
		n := 0
		for _, k := range s.NVec {
			n += k
		}
		return n
	}
	n := 1
	for _, k := range s.Shape {
		n *= k
	}
	return n
}

// box is a Box without parts.
func (s *space) box() envs.Box {
	n := s.size()
	b := envs.Box{Low: make([]float32, n), High: make([]float32, n), Shape: slices.Clone(s.Shape)}
	for i := range n {
		b.Low[i], b.High[i] = bound(s.Low, i), bound(s.High, i)
	}
	return b
}

// bytewise reports whether observations are sent as bytes: those of a lone Box of uint8.
func (s *space) bytewise() bool { return s.Kind == "Box" && s.DType == "uint8" }

// observations returns the space of observations, and its parts.
func (s *space) observations() (envs.Space, []Part, error) {
	leaves, err := s.leaves(nil, "", 0)
	if err != nil {
		return nil, nil, fmt.Errorf("observation space: %w", err)
	}
	if leaves[0].space == s {
		own := s.alone()
		return own, []Part{s.part("", 0, own.Dim())}, nil
	}
	var parts []Part
	total := 0
	for _, l := range leaves {
		n := l.size()
		if total += n; total > maxDim {
			return nil, nil, fmt.Errorf("observation space: more than %d values", maxDim)
		}
		parts = append(parts, l.part(l.name, total-n, total))
	}
	all := envs.NewBox(0, 1, total)
	for i, l := range leaves {
		if l.Kind == "Box" {
			b := l.box()
			copy(all.Low[parts[i].From:], b.Low)
			copy(all.High[parts[i].From:], b.High)
		}
	}
	return all, parts, nil
}

// part is a space without parts at its place.
func (s *space) part(name string, from, to int) Part {
	p := Part{Name: name, From: from, To: to, Kind: s.Kind, Shape: slices.Clone(s.Shape)}
	switch s.Kind {
	case "Discrete":
		p.N, p.Start = []int{s.N}, s.Start
	case "MultiDiscrete":
		p.N = slices.Clone(s.NVec)
	}
	return p
}

// alone is a space without parts as one of package envs.
func (s *space) alone() envs.Space {
	switch s.Kind {
	case "Discrete":
		return envs.Discrete{N: s.N, Start: s.Start}
	case "MultiDiscrete":
		return envs.MultiDiscrete{N: slices.Clone(s.NVec)}
	case "MultiBinary":
		return envs.MultiBinary{N: s.N}
	}
	b := s.box()
	if len(b.Shape) < 2 {
		b.Shape = nil
	}
	b.Pixels = s.bytewise() && !slices.ContainsFunc(b.Low, func(x float32) bool { return x != 0 }) &&
		!slices.ContainsFunc(b.High, func(x float32) bool { return x != 255 })
	return b
}

// actions returns the space of actions.
func (s *space) actions() (envs.Space, error) {
	leaves, err := s.leaves(nil, "", 0)
	if err != nil {
		return nil, fmt.Errorf("action space: %w", err)
	}
	if leaves[0].space == s && s.Kind != "MultiBinary" {
		a := s.alone()
		if b, ok := a.(envs.Box); ok {
			b.Pixels = false
			a = b
		}
		return a, nil
	}
	var numbers []int
	var all envs.Box
	total := 0
	for _, l := range leaves {
		if total += l.size(); total > maxDim {
			return nil, errors.New("action space: more than " + strconv.Itoa(maxDim) + " values")
		}
		switch l.Kind {
		case "Discrete":
			numbers = append(numbers, l.N)
		case "MultiDiscrete":
			numbers = append(numbers, l.NVec...)
		case "MultiBinary":
			numbers = append(numbers, slices.Repeat([]int{2}, l.N)...)
		default:
			b := l.box()
			all.Low, all.High = append(all.Low, b.Low...), append(all.High, b.High...)
		}
	}
	switch {
	case numbers != nil && all.Low != nil:
		return nil, errors.New("action space: a " + s.Kind + " of discrete spaces and boxes: want all discrete or all boxes; " +
			"wrap the environment so that its actions are of one kind")
	case numbers != nil:
		return envs.MultiDiscrete{N: numbers}, nil
	}
	return all, nil
}
