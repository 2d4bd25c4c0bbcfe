package kernels

// level is the set of instructions that the kernels use.
type level uint8

const (
	plain  level = iota // plain Go
	avx2                // AVX2 and FMA: 8 lanes
	avx512              // AVX-512 F, VL, DQ and BW: 16 lanes
)

// best is the level of this processor. It never changes; tests call the methods
// of other levels.
var best = levels()[0]

func (l level) String() string { return [...]string{"go", "avx2", "avx512"}[l] }
