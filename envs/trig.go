package envs

import "math"

// smallAngle is the largest angle of sincosSmall. A CartPole stays below it.
const smallAngle = 0.25

// sincos returns the sine and the cosine of x. Up to smallAngle it errs by
// hardly more than the half unit of the last rounding, where math.Sincos errs by
// nearly one: the pole of CartPole is unstable, and doubles a difference every
// nine steps. It is Taylor's series; the cosine adds up so that only its last
// sum rounds in the last place.
func sincos(x float64) (sin, cos float64) {
	if !(math.Abs(x) <= smallAngle) {
		return math.Sincos(x)
	}
	const (
		s3, s5, s7, s9, s11, s13 = -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800
		c4, c6, c8, c10, c12     = 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600
	)
	z := x * x
	p := float64(s13*z) + s11
	p = float64(p*z) + s9
	p = float64(p*z) + s7
	p = float64(p*z) + s5
	p = float64(p*z) + s3
	q := float64(c12*z) + c10
	q = float64(q*z) + c8
	q = float64(q*z) + c6
	q = float64(q*z) + c4
	half := 0.5 * z
	w := 1 - half
	return x + float64(float64(x*z)*p), w + ((1 - w) - half + float64(float64(z*z)*q))
}
