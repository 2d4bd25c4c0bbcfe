package kernels

// Add sets dst to a + b.
func Add(dst, a, b []float32) {
	same("Add", len(dst), len(a), len(b))
	best.add(dst, a, b)
}

// Sub sets dst to a - b.
func Sub(dst, a, b []float32) {
	same("Sub", len(dst), len(a), len(b))
	best.sub(dst, a, b)
}

// Mul sets dst to a * b.
func Mul(dst, a, b []float32) {
	same("Mul", len(dst), len(a), len(b))
	best.mul(dst, a, b)
}

// Div sets dst to a / b.
func Div(dst, a, b []float32) {
	same("Div", len(dst), len(a), len(b))
	best.div(dst, a, b)
}

// Min sets dst to the lesser of a and b, or to NaN if one of them is NaN. Of two
// zeros with different signs it takes that of b.
func Min(dst, a, b []float32) {
	same("Min", len(dst), len(a), len(b))
	best.minimum(dst, a, b)
}

// Max sets dst to the greater of a and b, or to NaN if one of them is NaN. Of two
// zeros with different signs it takes that of b.
func Max(dst, a, b []float32) {
	same("Max", len(dst), len(a), len(b))
	best.maximum(dst, a, b)
}

// Clamp sets dst to x, limited to the range from lo to hi. NaN stays NaN. If lo is
// greater than hi, the result is lo.
func Clamp(dst, x []float32, lo, hi float32) {
	same("Clamp", len(dst), len(x))
	best.clamp(dst, x, lo, hi)
}

// Scale sets dst to alpha * x.
func Scale(dst, x []float32, alpha float32) {
	same("Scale", len(dst), len(x))
	best.scale(dst, x, alpha)
}

// Axpy adds alpha * x to dst, rounded once.
func Axpy(dst, x []float32, alpha float32) {
	same("Axpy", len(dst), len(x))
	best.axpy(dst, x, alpha)
}

// MulAdd adds a * b to dst, rounded once. It is the backward form of [Mul], with
// dy and the other factor, and of [Exp], with dy and y.
func MulAdd(dst, a, b []float32) {
	same("MulAdd", len(dst), len(a), len(b))
	best.mulAdd(dst, a, b)
}

// DivAdd adds a / b to dst. It is the backward form of [Log], with dy and x, and
// that of [Div] for the numerator, with dy and the denominator.
func DivAdd(dst, a, b []float32) {
	same("DivAdd", len(dst), len(a), len(b))
	best.divAdd(dst, a, b)
}

// DivBackward is the backward form of [Div] for the denominator: with y = a/b, it
// subtracts dy * y/b from db.
func DivBackward(db, dy, y, b []float32) {
	same("DivBackward", len(db), len(dy), len(y), len(b))
	best.divSub(db, dy, y, b)
}

// MinBackward is the backward form of [Min]: it adds dy to da where a <= b, and to
// db elsewhere.
func MinBackward(da, db, dy, a, b []float32) {
	same("MinBackward", len(da), len(db), len(dy), len(a), len(b))
	best.minBackward(da, db, dy, a, b)
}

// MaxBackward is the backward form of [Max]: it adds dy to da where a >= b, and to
// db elsewhere.
func MaxBackward(da, db, dy, a, b []float32) {
	same("MaxBackward", len(da), len(db), len(dy), len(a), len(b))
	best.maxBackward(da, db, dy, a, b)
}

// ClampBackward is the backward form of [Clamp]: it adds dy to dx where x is from
// lo to hi, both included.
func ClampBackward(dx, dy, x []float32, lo, hi float32) {
	same("ClampBackward", len(dx), len(dy), len(x))
	best.clampBackward(dx, dy, x, lo, hi)
}

// Polyak moves dst towards src: dst += tau * (src - dst). B. T. Polyak and A. B.
// Juditsky, "Acceleration of stochastic approximation by averaging" (1992).
func Polyak(dst, src []float32, tau float32) {
	same("Polyak", len(dst), len(src))
	best.polyak(dst, src, tau)
}

// SumSquares returns the sum of the squares of x, computed in float64.
func SumSquares(x []float32) float64 { return best.sumSquares(x) }

// AdamStep has the numbers of one step of [Adam].
type AdamStep struct {
	Decay1, Gain1 float32 // of the first moment: beta1 and 1 - beta1
	Decay2, Gain2 float32 // of the second moment: beta2 and 1 - beta2
	Rate          float32 // the learning rate, corrected for the bias of step t: rate * sqrt(1-beta2^t) / (1-beta1^t)
	Epsilon       float32 // epsilon * sqrt(1-beta2^t)
	WeightDecay   float32 // the part of each weight that is lost: rate * decay, as AdamW has it; 0 for Adam
}

// Adam does one step of D. P. Kingma and J. Ba, "Adam: A Method for Stochastic
// Optimization" (2015), in the form of the end of its section 2:
//
//	m = Decay1*m + Gain1*grad
//	v = Decay2*v + Gain2*grad*grad
//	weights = (1-WeightDecay)*weights - Rate*m/(sqrt(v)+Epsilon)
//
// The decoupled weight decay is that of I. Loshchilov and F. Hutter, "Decoupled
// Weight Decay Regularization" (2019).
func Adam(weights, grad, m, v []float32, s AdamStep) {
	same("Adam", len(weights), len(grad), len(m), len(v))
	best.adamStep(weights, grad, m, v, s)
}

func (l level) adamStep(weights, grad, m, v []float32, s AdamStep) {
	l.adam(weights, grad, m, v, s.Decay1, s.Gain1, s.Decay2, s.Gain2, s.Rate, s.Epsilon, 1-s.WeightDecay)
}
