package gym

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"
)

// memory is the memory that a vector shares with a process, and the places in it. The process learns the
// places with the message that has the path.
type memory struct {
	Path       string `json:"path"`
	Size       int    `json:"size"`
	Flags      int    `json:"flags"`   // num bytes
	Actions    int    `json:"actions"` // num x width
	Obs        int    `json:"obs"`     // num rows: the number of the step, the reward, an observation
	Final      int    `json:"final"`   // num rows
	Infos      int    `json:"infos"`   // num x infos: float64
	Row        int    `json:"row"`     // bytes from one row to the next
	Elem       string `json:"elem"`    // f: float32; B: bytes
	ActionElem string `json:"action_elem"`

	seq uint32 // the number of the last step
	b   []byte // it begins with headWords
	dim int
}

// The flags of an environment.
const (
	flagTerminated = 1 << iota
	flagTruncated
	flagReset
	flagsAll = 1<<iota - 1
)

// The int32 with which the memory begins. Python writes those of the first cache line, and this process
// writes those of the second.
const (
	wordBusy     = 0  // which environment is in the middle of something
	wordOp       = 1  // and of which operation
	wordAnswered = 2  // the number of the newest step that has been made
	wordTold     = 3  // 1: a message is its answer, too
	wordAsleep   = 4  // 1: Python waits for a message, or is about to
	wordSeq      = 16 // the number of the step that is requested
	wordCPU      = 17 // 1 + the processor on which Python waits after a step on any; everyCPU: it takes all back; 0: it stays where it is
	wordSpins    = 18 // how often Python looks for the next step before it waits for a message
	wordWaiting  = 19 // the number of the step whose answer must be a message
	headWords    = 32
)

// headBytes is the size of the head of a row, before the observation: int32, four zeros, float64.
const headBytes = 16

// places returns the memory for num environments, before there is some.
func places(num, dim, width, infos int, bytewise, discrete bool) *memory {
	m := &memory{Elem: "f", ActionElem: "f", Row: 4 * dim, dim: dim, Size: 4 * headWords}
	if bytewise {
		m.Elem, m.Row = "B", dim
	}
	if discrete {
		m.ActionElem = "i"
	}
	m.Row = (headBytes + m.Row + 7) &^ 7
	for _, part := range []struct {
		at   *int
		size int
	}{{&m.Flags, num}, {&m.Actions, 4 * num * width}, {&m.Obs, m.Row * num}, {&m.Final, m.Row * num}, {&m.Infos, 8 * num * infos}} {
		*part.at = m.Size
		m.Size = (m.Size + part.size + 63) &^ 63
	}
	return m
}

// maxMemory bounds the memory that is shared with one process.
const maxMemory = 16 << 30

// open makes the memory in the first of the folders that has room. The file must be removed by the
// caller when the process has it.
func (m *memory) open(folders ...string) error {
	if m.Size > maxMemory {
		return fmt.Errorf("observations of a process take %d bytes of memory: want %d at most; use more processes or fewer environments",
			m.Size, maxMemory)
	}
	var faults []error
	for _, dir := range folders {
		err := m.create(dir)
		if err == nil {
			return nil
		}
		faults = append(faults, err)
	}
	return fmt.Errorf("make shared memory: %w", errors.Join(faults...))
}

func (m *memory) create(dir string) (err error) {
	f, err := os.CreateTemp(dir, "ditask-gym-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	// Written, and not only made so long: a file system that is full must not be found out by a fault
	// in the memory.
	zeros := make([]byte, min(m.Size, 1<<20))
	for left := m.Size; left > 0; left -= len(zeros) {
		zeros = zeros[:min(left, len(zeros))]
		if _, err := f.Write(zeros); err != nil {
			return err
		}
	}
	m.Path = f.Name()
	m.b, err = mapFile(f, m.Size)
	return err
}

// remove removes the name of the memory's file.
func (m *memory) remove() error { return os.Remove(m.Path) }

func (m *memory) close() {
	if m != nil && m.b != nil {
		_ = unmap(m.b)
		m.b = nil
	}
}

// The operations that a process can be in the middle of.
const (
	inStep = iota
	inReset
	inRender
	inMake
)

func opName(op int) string {
	if names := []string{"step", "reset", "render", "make"}; op >= 0 && op < len(names) {
		return names[op]
	}
	return "step"
}

// word is one of the numbers with which the memory begins.
func (m *memory) word(k int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&m.b[4*k])) }

// busy returns the environment that the process was in last, and its operation.
func (m *memory) busy(num int) (i int, op string) {
	i = int(int32(m.word(wordBusy).Load()))
	what := int(int32(m.word(wordOp).Load()))
	for k := 0; what == inStep && k < num; k++ {
		if i = k; binary.LittleEndian.Uint32(m.b[m.Obs+k*m.Row:]) != m.seq {
			break // it has not finished this one
		}
	}
	if i < 0 || i >= num {
		i = 0
	}
	return i, opName(what)
}

// setActions writes actions, and clears the flags.
func (m *memory) setActions(actions []float32, num int) {
	m.seq = m.seq%math.MaxInt32 + 1
	clear(m.b[m.Flags : m.Flags+num])
	to := m.b[m.Actions : m.Actions+4*len(actions)]
	if m.ActionElem == "f" {
		for i, x := range actions {
			binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(x))
		}
		return
	}
	for i, x := range actions {
		binary.LittleEndian.PutUint32(to[4*i:], uint32(int32(x)))
	}
}

func (m *memory) reward(i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(m.b[m.Obs+m.Row*i+8:]))
}

// info is number k of the infos of environment i, which has n of them, or NaN.
func (m *memory) info(i, k, n int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(m.b[m.Infos+8*(i*n+k):]))
}

// row copies the row of an environment that begins at one of the places to dst.
func (m *memory) row(dst []float32, at, i int) {
	from := m.b[at+m.Row*i:][headBytes:m.Row]
	if m.Elem == "B" {
		bytesToFloats(dst, from)
		return
	}
	copy(dst, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(from))), m.dim)) // both sides are little-endian
}

// bytesToFloats converts as many bytes as dst has values.
func bytesToFloats(dst []float32, from []byte) {
	from = from[:len(dst)]
	n := convertMost(dst, from)
	dst, from = dst[n:], from[n:]
	for len(dst) >= 8 && len(from) >= 8 {
		d, x := dst[:8:8], binary.LittleEndian.Uint64(from)
		d[0], d[1], d[2], d[3] = float32(uint8(x)), float32(uint8(x>>8)), float32(uint8(x>>16)), float32(uint8(x>>24))
		d[4], d[5], d[6], d[7] = float32(uint8(x>>32)), float32(uint8(x>>40)), float32(uint8(x>>48)), float32(uint8(x>>56))
		dst, from = dst[8:], from[8:]
	}
	for k, x := range from {
		dst[k] = float32(x)
	}
}

// notFinite returns the first value of a row that is NaN or infinite, and its place, or -1.
func (m *memory) notFinite(at, i int) (value float32, place int) {
	if m.Elem == "B" {
		return 0, -1
	}
	// The bytes behind the values of a row are zero. A number that is not finite has an exponent of ones
	// only, which adding one to it carries into the place of the sign.
	const exponents, ones, signs = 0x7f8000007f800000, 0x0080000000800000, 0x8000000080000000
	from, sum := m.b[at+m.Row*i:][headBytes:m.Row], uint64(0)
	if found, n := oddInMost(from); found {
		sum = signs
	} else {
		from = from[n:]
	}
	for ; len(from) >= 32; from = from[32:] {
		a, b := binary.LittleEndian.Uint64(from)&exponents+ones, binary.LittleEndian.Uint64(from[8:])&exponents+ones
		c, d := binary.LittleEndian.Uint64(from[16:])&exponents+ones, binary.LittleEndian.Uint64(from[24:])&exponents+ones
		sum |= a | b | c | d
	}
	for ; len(from) >= 8; from = from[8:] {
		sum |= binary.LittleEndian.Uint64(from)&exponents + ones
	}
	if sum&signs == 0 {
		return 0, -1
	}
	from = m.b[at+m.Row*i:][headBytes:]
	for k := range m.dim {
		if bits := binary.LittleEndian.Uint32(from[4*k:]); bits&0x7f800000 == 0x7f800000 {
			return math.Float32frombits(bits), k
		}
	}
	return 0, -1
}

// folders are where shared memory is made: those without a disk first.
func folders() []string { return slices.Compact([]string{"/dev/shm", os.TempDir()}) }
