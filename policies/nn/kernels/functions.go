package kernels

// ReLU sets dst to max(0, x). NaN stays NaN.
func ReLU(dst, x []float32) {
	same("ReLU", len(dst), len(x))
	best.relu(dst, x)
}

// ReLUBackward is the backward form of [ReLU]: it adds dy to dx where y is
// greater than 0.
func ReLUBackward(dx, dy, y []float32) {
	same("ReLUBackward", len(dx), len(dy), len(y))
	best.reluBackward(dx, dy, y)
}

// Exp sets dst to e to the power of x. The error is at most 1.1
// units in the last place. Results below the least denormal are 0; results above
// the greatest float32 are infinite.
func Exp(dst, x []float32) {
	same("Exp", len(dst), len(x))
	best.exp(dst, x)
}

// Log sets dst to the natural logarithm of x: -Inf for 0, NaN below. The error is
// at most 1 unit in the last place.
func Log(dst, x []float32) {
	same("Log", len(dst), len(x))
	best.log(dst, x)
}

// Tanh sets dst to the hyperbolic tangent of x. The error is at most 3 units
// in the last place.
func Tanh(dst, x []float32) {
	same("Tanh", len(dst), len(x))
	best.tanh(dst, x)
}

// TanhBackward is the backward form of [Tanh]: it adds dy * (1 - y*y) to dx.
func TanhBackward(dx, dy, y []float32) {
	same("TanhBackward", len(dx), len(dy), len(y))
	best.tanhBackward(dx, dy, y)
}

// Sigmoid sets dst to 1 / (1 + exp(-x)). The error is at most 3 units in
// the last place.
func Sigmoid(dst, x []float32) {
	same("Sigmoid", len(dst), len(x))
	best.sigmoid(dst, x)
}

// SigmoidBackward is the backward form of [Sigmoid]: it adds dy * (y - y*y) to dx.
func SigmoidBackward(dx, dy, y []float32) {
	same("SigmoidBackward", len(dx), len(dy), len(y))
	best.sigmoidBackward(dx, dy, y)
}

// Softplus sets dst to log(1 + exp(x)). The error is at most 2 units in
// the last place.
func Softplus(dst, x []float32) {
	same("Softplus", len(dst), len(x))
	best.softplus(dst, x)
}

// SoftplusBackward is the backward form of [Softplus]: it adds dy * sigmoid(x) to
// dx. The last argument is x, not y.
func SoftplusBackward(dx, dy, x []float32) {
	same("SoftplusBackward", len(dx), len(dy), len(x))
	best.softplusBackward(dx, dy, x)
}

// Softmax sets each row of dst to exp(x) / sum(exp(x)) of the same row of x. The
// largest value of the row is subtracted first, so that exp does not overflow. A
// row with NaN or +Inf, or with nothing but -Inf, gives NaN. dst may be x.
func Softmax(dst, x Matrix) {
	sameShape("Softmax", dst, x)
	best.softmax(dst, x)
}

// LogSoftmax sets each row of dst to the logarithm of the result of [Softmax].
func LogSoftmax(dst, x Matrix) {
	sameShape("LogSoftmax", dst, x)
	best.logSoftmax(dst, x)
}

func sameShape(op string, dst, x Matrix) {
	x.check(op, "x")
	dst.is(op, "dst", x.Rows, x.Cols)
}
