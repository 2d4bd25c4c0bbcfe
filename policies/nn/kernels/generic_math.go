package kernels

import "math"

// The functions below and the assembly do the same operations in the same order,
// so that both give the same bits. Explicit conversions keep a compiler from
// fusing what the assembly does not fuse.

const (
	ln2Hi    = 0.693115234375 // 12 bits: the product with a small integer is exact
	ln2Lo    = 3.19461849453e-05
	expLow   = -105    // below, exp is 0
	expHigh  = 89      // above, exp is infinite
	tanhTiny = 0x1p-13 // below, tanh(x) is x to a tenth of a unit of the last place
	one      = 0x3f800000
	rootHalf = 0x3f3504f3 // the bits of the root of 1/2
)

// fma returns a*b + c, rounded once. The product of two float32 is exact in
// float64. Rounding the sum to float64 first and to float32 afterwards errs only
// if the first result lies halfway between two float32.
func fma(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	if math.Float64bits(s)&(1<<28-1) != 0 {
		return float32(s)
	}
	return roundOnce(p, float64(c), s)
}

// roundOnce returns p + q, rounded once to float32; s is the sum in float64. If
// it is not exact, it moves by a bit in the direction of the exact sum, so that
// it is not halfway any more.
func roundOnce(p, q, s float64) float32 {
	bits := math.Float64bits(s)
	t := s - p
	switch e := (p - (s - t)) + (q - t); {
	case e > 0 && s > 0, e < 0 && s < 0:
		bits++
	case e > 0 && s < 0, e < 0 && s > 0:
		bits--
	}
	return float32(math.Float64frombits(bits))
}

// power returns 2 to the power of n, from -126 to 127.
func power(n int32) float32 { return math.Float32frombits(uint32(n<<23 + one)) }

// reduce returns the whole number n nearest to x/ln 2, and exp(x - n ln 2) - 1.
// ln 2 is split in two parts (W. J. Cody and W. Waite, "Software Manual for the
// Elementary Functions", 1980).
func reduce(x float32) (n int32, p float32) {
	f := float32(math.RoundToEven(float64(float32(x * math.Log2E))))
	r := fma(-f, ln2Hi, x)
	r = fma(-f, ln2Lo, r)
	q := fma(0.00139261775, r, 0.00836317418)
	q = fma(q, r, 0.04166655465)
	q = fma(q, r, 0.1666657702)
	q = fma(q, r, 0.5)
	return int32(f), fma(float32(r*r), q, r)
}

func exp32(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < expLow:
		x = expLow
	case x > expHigh:
		x = expHigh
	}
	n, p := reduce(x)
	half := n >> 1 // 2 to the power of n can be denormal or infinite
	return float32(float32(float32(p+1)*power(half)) * power(n-half))
}

func tanh32(x float32) float32 {
	y := float32(math.Abs(float64(x)))
	if !(y >= tanhTiny) { // the result is x, and for NaN too
		return x
	}
	n, p := reduce(-2 * min(y, 10))
	s := power(n)
	e := fma(p, s, s-1) // exp(-2|x|) - 1
	return float32(math.Copysign(float64(e/(e+2)), float64(x)))
}

// expNegAbs returns exp(-|x|).
func expNegAbs(x float32) float32 { return exp32(-float32(math.Abs(float64(x)))) }

func sigmoid32(x float32) float32 {
	e := expNegAbs(x)
	if x < 0 {
		return e / (e + 1)
	}
	return 1 / (e + 1)
}

// logOf returns log(1+f) + n ln 2, for 1+f from the root of 1/2 to that of 2.
func logOf(f, n float32) float32 {
	t := fma(0.0697161147, f, -0.1147973385)
	t = fma(t, f, 0.1168541992)
	t = fma(t, f, -0.1242568733)
	t = fma(t, f, 0.1424905765)
	t = fma(t, f, -0.1666780232)
	t = fma(t, f, 0.2000071575)
	t = fma(t, f, -0.2499999696)
	t = fma(t, f, 0.3333333118)
	t = fma(t, f, -0.5)
	y := fma(float32(f*f), t, float32(n*ln2Lo))
	return fma(n, ln2Hi, float32(y+f))
}

func log32(x float32) float32 {
	switch {
	case x < 0:
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	case x != x || x > math.MaxFloat32:
		return x
	}
	var shift float32
	if x < 0x1p-126 {
		x, shift = x*0x1p23, 23
	}
	bits := int32(math.Float32bits(x))
	e := (bits - rootHalf) >> 23
	m := math.Float32frombits(uint32(bits - e<<23))
	return logOf(m-1, float32(e)-shift)
}

func softplus32(x float32) float32 {
	if x != x {
		return x
	}
	e := expNegAbs(x)
	f, n := e, float32(0)
	if e > math.Sqrt2-1 {
		f, n = float32(e-1)*0.5, 1
	}
	return max(x, 0) + logOf(f, n)
}

// fold adds 16 chains in the order of the assembly.
func fold[T float32 | float64](sum *[16]T) T {
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			sum[i] += sum[i+half]
		}
	}
	return sum[0]
}

func sumSquaresGo(x []float32) float64 {
	var sum [16]float64
	for i, v := range x {
		sum[i%16] += float64(v) * float64(v)
	}
	return fold(&sum)
}

// peakAndSum returns the largest value of x and the sum of exp(x - peak), and
// writes these values to dst unless it is nil.
func peakAndSum(dst, x []float32) (peak, total float32) {
	peak = float32(math.Inf(-1))
	for _, v := range x {
		if v > peak {
			peak = v
		}
	}
	var sum [16]float32
	for i, v := range x {
		e := exp32(v - peak)
		sum[i%16] += e
		if dst != nil {
			dst[i] = e
		}
	}
	return peak, fold(&sum)
}

func softmaxGo(dst, x Matrix) {
	for i := range x.Rows {
		row := dst.Row(i)
		_, sum := peakAndSum(row, x.Row(i))
		for j := range row {
			row[j] /= sum
		}
	}
}

func logSoftmaxGo(dst, x Matrix) {
	for i := range x.Rows {
		peak, sum := peakAndSum(nil, x.Row(i))
		sum = log32(sum)
		row := dst.Row(i)
		for j, v := range x.Row(i) {
			row[j] = v - peak - sum
		}
	}
}
