package payload

import (
	"math"
	"math/bits"
	"reflect"
	"sync"
)

// The memory that a decoded value may take, in bytes, besides the value passed to [Plan.Decode]:
// memoryFree, and memoryPerByte for each byte of the payload, but for a large payload at most
// memoryAhead and largePerByte for each byte.
//
// Some values take much more memory than bytes on the wire: an empty slice is one byte, and its
// header has 24; an empty map is one byte, and takes 48. A peer could fill the memory of a node
// with them. Values of programs stay below the limit, since they are mostly numbers: tensors take
// as much memory as bytes, lists of small structs up to 8 times as much, maps with small entries up
// to 12 times. The first memoryFree bytes are always within the budget.
const (
	memoryFree    = 64 << 10
	memoryPerByte = 16
	memoryAhead   = 64 << 20
	largePerByte  = 4
)

// The sizes of values that an interface may hold, and of an interface, in bytes.
const (
	stringBytes = 16
	sliceBytes  = 24
	timeBytes   = 24
	anyBytes    = 16
	// offsetBytes is the memory that package time keeps for an offset other than UTC.
	offsetBytes = 160
)

// budget counts the memory of one decoded value. A nil budget is for payloads that cannot exceed
// theirs: it counts nothing.
type budget struct {
	left, all int
	payload   int // its length, in bytes
}

var budgets = sync.Pool{New: func() any { return new(budget) }}

// newBudget returns the budget for a payload of n bytes. The caller puts it back into budgets.
func newBudget(n int) *budget {
	b := budgets.Get().(*budget)
	b.all, b.payload = memoryFor(n), n
	b.left = b.all
	return b
}

// memoryFor returns the memory that a value of n bytes may take.
func memoryFor(n int) int {
	return min(saturate(memoryFree, memoryPerByte, n), saturate(memoryFree+memoryAhead, largePerByte, n))
}

// take counts n bytes of memory, and reports whether they are within the budget.
func (b *budget) take(n int) bool {
	if b == nil {
		return true
	}
	b.left -= n
	return b.left >= 0
}

// The remedy for a value that takes too much memory.
const slimmer = "send numbers as slices of numbers, structs in the place of maps, and fewer empty parts, or several smaller values"

// exceeded returns the error of the receiver.
func (b *budget) exceeded(pos int) error {
	return invalid(pos, "takes more than %d bytes of memory, the limit for a payload of %d bytes: %s", b.all, b.payload, slimmer)
}

// check returns the error of the sender, for a payload of n bytes.
func (b *budget) check(n int) error {
	if b.all-b.left <= memoryFor(n) {
		return nil
	}
	return refuse("takes %d bytes of memory where it is decoded; the limit for its %d bytes is %d: %s", b.all-b.left, n, memoryFor(n), slimmer)
}

// product returns n*size, or more than any budget if that overflows an int.
func product(n, size int) int {
	if uint(n|size) < 1<<(bits.UintSize/2-1) {
		return n * size
	}
	return min(saturate(0, size, n), math.MaxInt/4)
}

// objectBytes returns the memory of one value that is allocated on its own.
func objectBytes(t reflect.Type) int { return (int(t.Size()) + word - 1) &^ (word - 1) }

// The memory of a map: its head, groups of 8 entries with 8 control bytes, and, in a map with more
// than one group, up to 5/2 places for each entry. Keys and values of more than 128 bytes are
// allocated on their own.
const (
	mapHead     = 48
	mapGroup    = 8
	mapIndirect = 128
)

// mapBytes returns the memory of a map of n entries with keys and values of those sizes.
func mapBytes(n, key, value int) int {
	if n == 0 {
		return mapHead
	}
	place, apart := 1, 0 // 1: of control
	for _, size := range [...]int{key, value} {
		if size > mapIndirect {
			apart += size
			size = word
		}
		place += size
	}
	places := mapGroup
	if n > mapGroup {
		places = n/2*5 + 3
	}
	return mapHead + product(places, place) + product(n, apart)
}

// The upper bounds of growth, memory for each byte of a payload, for values without a length: an
// any with nested maps of one entry, and a time with an offset.
const (
	anyGrowth  = 256
	timeGrowth = (offsetBytes + 19) / 20
)

// growth is an upper bound of the memory that decoding a value takes besides its own place, for
// each byte of its payload; math.MaxInt means that there is none, since the type contains itself.
func growth(c coder, within map[coder]bool) int {
	switch c.(type) {
	case *structCoder, *sliceCoder, *arrayCoder, *mapCoder, *pointerCoder:
		if within[c] {
			return math.MaxInt
		}
		within[c] = true
		defer delete(within, c)
	}
	switch c := c.(type) {
	case stringCoder, *ownCoder:
		return 1
	case timeCoder:
		return timeGrowth
	case *anyCoder:
		return anyGrowth
	case *tensorCoder:
		return c.memory
	case *sliceCoder:
		return perByte(int(c.size), c.element.minBytes(), growth(c.element, within))
	case *arrayCoder:
		return growth(c.element, within)
	case *pointerCoder:
		return perByte(objectBytes(c.typ), c.element.minBytes(), growth(c.element, within))
	case *mapCoder:
		return c.growth(within)
	case *structCoder:
		most := 0
		for _, f := range c.fields {
			most = max(most, growth(f.coder, within))
		}
		return most
	}
	return 0
}

// growth is the maximum over maps of no entry, of one, and the smallest with more than a group,
// which take the most memory for each entry.
func (m *mapCoder) growth(within map[coder]bool) int {
	inside := saturate(growth(m.key, within), growth(m.value, within), 1)
	most := perByte(m.memory(0), 1, inside)
	for _, n := range [...]int{1, mapGroup + 1} {
		most = max(most, perByte(m.memory(n), saturate(1, m.key.minBytes()+m.value.minBytes(), n), inside))
	}
	return most
}

// perByte returns memory for each of bytes, rounded up, plus more.
func perByte(memory, bytes, more int) int {
	return saturate(more, 1+(memory-1)/bytes, 1)
}

// boundless returns the length up to which payloads of a plan cannot exceed their budget.
func boundless(root coder) int {
	g := growth(root, map[coder]bool{})
	switch {
	case g <= largePerByte:
		return math.MaxInt
	case g <= memoryPerByte:
		return (memoryFree + memoryAhead) / (g - largePerByte)
	}
	return memoryFree / (g - memoryPerByte)
}
