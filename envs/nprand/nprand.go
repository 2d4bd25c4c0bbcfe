// Package nprand draws the same random numbers as numpy's default generator,
// so that an environment reset with a seed starts exactly where Gymnasium's
// does.
//
//	r := nprand.New(42)              // numpy.random.Generator(PCG64(SeedSequence(42)))
//	state := make([]float64, 4)
//	r.Uniform(state, -0.05, 0.05)    // .uniform(-0.05, 0.05, size=4), bit for bit
//
// A [PCG64] is a [math/rand/v2.Source] too, for everything that needs no
// agreement with numpy. It is not safe for concurrent use. Nothing here fails.
//
// The algorithms are M. E. O'Neill's "PCG: A Family of Simple Fast
// Space-Efficient Statistically Good Algorithms for Random Number Generation"
// (2014), variant XSL-RR 128/64, seeded by numpy's SeedSequence, which is
// O'Neill's seed_seq_fe with a pool of four words.
package nprand

import (
	"math"
	"math/bits"
)

// The constants of numpy's SeedSequence.
const (
	initA    = 0x43b0d7e5
	multA    = 0x931e8875
	initB    = 0x8b51f9dd
	multB    = 0x58f38ded
	mixMultL = 0xca01f9dd
	mixMultR = 0x4973f715
	xshift   = 16
	poolSize = 4
)

// SeedSequence spreads a seed over a pool of four words from which any number
// of well mixed words can be generated. It equals numpy.random.SeedSequence
// of a non-negative integer below 2^64.
type SeedSequence struct {
	pool [poolSize]uint32
}

// NewSeedSequence returns the sequence of one seed.
func NewSeedSequence(seed uint64) SeedSequence {
	entropy := [poolSize]uint32{uint32(seed), uint32(seed >> 32)}
	hash := uint32(initA)
	hashmix := func(v uint32) uint32 {
		v ^= hash
		hash *= multA
		v *= hash
		return v ^ v>>xshift
	}
	var s SeedSequence
	for i, v := range entropy {
		s.pool[i] = hashmix(v)
	}
	for src := range s.pool {
		for dst := range s.pool {
			if src != dst {
				s.pool[dst] = mix(s.pool[dst], hashmix(s.pool[src]))
			}
		}
	}
	return s
}

func mix(x, y uint32) uint32 {
	v := mixMultL*x - mixMultR*y
	return v ^ v>>xshift
}

// Generate fills dst with the first len(dst) words of the sequence, as
// numpy's generate_state(len(dst), uint64) does.
func (s SeedSequence) Generate(dst []uint64) {
	hash := uint32(initB)
	for i := range 2 * len(dst) {
		v := s.pool[i%poolSize] ^ hash
		hash *= multB
		v *= hash
		v ^= v >> xshift
		if i%2 == 0 {
			dst[i/2] = uint64(v)
		} else {
			dst[i/2] |= uint64(v) << 32
		}
	}
}

// The 128-bit multiplier of the generator.
const (
	multiplierHi = 2549297995355413924
	multiplierLo = 4865540595714422341
)

// PCG64 is the generator XSL-RR 128/64, numpy's default. Its zero value is
// not seeded: use [New]. The exported state lets a checkpoint hold it.
type PCG64 struct {
	Hi, Lo       uint64 // state
	IncHi, IncLo uint64 // stream, odd
	// Half is the upper half of a word whose lower half Uint32 returned last,
	// if HasHalf is set.
	Half    uint32
	HasHalf bool
}

// New returns the generator that numpy.random.default_rng(seed) has inside.
func New(seed uint64) *PCG64 {
	var words [4]uint64
	NewSeedSequence(seed).Generate(words[:])
	p := &PCG64{IncHi: words[2]<<1 | words[3]>>63, IncLo: words[3]<<1 | 1}
	p.step()
	var carry uint64
	p.Lo, carry = bits.Add64(p.Lo, words[1], 0)
	p.Hi, _ = bits.Add64(p.Hi, words[0], carry)
	p.step()
	return p
}

// step advances the state: state*multiplier + increment, modulo 2^128.
func (p *PCG64) step() {
	hi, lo := bits.Mul64(p.Lo, multiplierLo)
	hi += p.Hi*multiplierLo + p.Lo*multiplierHi
	var carry uint64
	p.Lo, carry = bits.Add64(lo, p.IncLo, 0)
	p.Hi, _ = bits.Add64(hi, p.IncHi, carry)
}

// Uint64 returns the next 64 random bits.
func (p *PCG64) Uint64() uint64 {
	p.step()
	return bits.RotateLeft64(p.Hi^p.Lo, -int(p.Hi>>58))
}

// Float64 returns a number in [0, 1) with 53 random bits.
func (p *PCG64) Float64() float64 {
	return float64(p.Uint64()>>11) * (1.0 / (1 << 53))
}

// Uniform fills dst with numbers in [low, high), as Generator.uniform does.
func (p *PCG64) Uniform(dst []float64, low, high float64) {
	width := high - low
	for i := range dst {
		// The conversion keeps a compiler from fusing the multiplication and
		// the addition, which would round differently from numpy.
		dst[i] = low + float64(width*p.Float64())
	}
}

// Uint32 returns the next 32 random bits. As numpy does, it takes the two
// halves of one 64-bit word in two calls, the lower first; the other methods
// leave a half that waits where it is.
func (p *PCG64) Uint32() uint32 {
	if p.HasHalf {
		p.HasHalf = false
		return p.Half
	}
	w := p.Uint64()
	p.HasHalf, p.Half = true, uint32(w>>32)
	return uint32(w)
}

// Integers returns an integer in [low, high), each equally likely, as
// Generator.integers(low, high) does. It panics if there is none. The method is
// D. Lemire's "Fast Random Integer Generation in an Interval" (2019).
func (p *PCG64) Integers(low, high int64) int64 {
	if high <= low {
		panic("nprand: integers in an empty interval")
	}
	span := uint64(high) - uint64(low) // how many; the last offset is span-1
	switch {
	case span == 1:
		return low // numpy draws nothing
	case span-1 == math.MaxUint32:
		return low + int64(p.Uint32())
	case span-1 < math.MaxUint32:
		return low + int64(p.below32(uint32(span)))
	}
	return int64(uint64(low) + p.below64(span))
}

func (p *PCG64) below32(n uint32) uint32 {
	m := uint64(p.Uint32()) * uint64(n)
	if low := uint32(m); low < n {
		for threshold := -n % n; low < threshold; low = uint32(m) {
			m = uint64(p.Uint32()) * uint64(n)
		}
	}
	return uint32(m >> 32)
}

func (p *PCG64) below64(n uint64) uint64 {
	hi, lo := bits.Mul64(p.Uint64(), n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			hi, lo = bits.Mul64(p.Uint64(), n)
		}
	}
	return hi
}

// Choice returns an index in [0, n), each equally likely: the index of the item
// that Generator.choice takes from n items.
func (p *PCG64) Choice(n int) int { return int(p.Integers(0, int64(n))) }

// WeightedChoice returns an index drawn with the given probabilities, which add
// up to 1, as Generator.choice(n, p=probabilities) does.
func (p *PCG64) WeightedChoice(probabilities []float64) int {
	total := 0.0
	for _, w := range probabilities {
		total += w
	}
	x, sum := p.Float64(), 0.0
	for i, w := range probabilities {
		if sum += w; x < sum/total {
			return i
		}
	}
	return len(probabilities) - 1
}

// Shuffle puts n items in a random order, the same as that of numpy's
// Generator.shuffle. swap exchanges the items i and j.
func (p *PCG64) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, int(p.interval(uint64(i))))
	}
}

// interval returns a number in [0, last] as numpy's random_interval does: it
// draws as many bits as last has until they are not above it.
func (p *PCG64) interval(last uint64) uint64 {
	mask := uint64(1)<<bits.Len64(last) - 1
	for {
		var v uint64
		if last <= math.MaxUint32 {
			v = uint64(p.Uint32()) & mask
		} else {
			v = p.Uint64() & mask
		}
		if v <= last {
			return v
		}
	}
}
