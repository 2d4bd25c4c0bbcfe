package kernels

import "math"

// Each function xGo is kernel x in plain Go, for all slices of one length.

func addGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func subGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mulGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func divGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// minimumGo differs from min in that of two zeros it takes b, as the assembly does.
func minimumGo(dst, a, b []float32) {
	for i, v := range a {
		if v < b[i] || v != v {
			dst[i] = v
		} else {
			dst[i] = b[i]
		}
	}
}

func maximumGo(dst, a, b []float32) {
	for i, v := range a {
		if v > b[i] || v != v {
			dst[i] = v
		} else {
			dst[i] = b[i]
		}
	}
}

func clampGo(dst, x []float32, lo, hi float32) {
	for i, v := range x {
		if hi < v {
			v = hi
		}
		if lo > v {
			v = lo
		}
		dst[i] = v
	}
}

func scaleGo(dst, x []float32, alpha float32) {
	for i, v := range x {
		dst[i] = alpha * v
	}
}

func axpyGo(dst, x []float32, alpha float32) {
	for i, v := range x {
		dst[i] = fma(v, alpha, dst[i])
	}
}

func polyakGo(dst, x []float32, tau float32) {
	for i, v := range x {
		dst[i] = fma(v-dst[i], tau, dst[i])
	}
}

func mulAddGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = fma(a[i], b[i], dst[i])
	}
}

func divAddGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] += a[i] / b[i]
	}
}

func divSubGo(db, dy, y, b []float32) {
	for i := range db {
		db[i] = fma(-dy[i], y[i]/b[i], db[i])
	}
}

func reluGo(dst, x []float32) {
	for i, v := range x {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func expGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = exp32(v)
	}
}

func logGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = log32(v)
	}
}

func tanhGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = tanh32(v)
	}
}

func sigmoidGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = sigmoid32(v)
	}
}

func softplusGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = softplus32(v)
	}
}

func reluBackwardGo(dx, dy, y []float32) {
	for i, v := range y {
		if v > 0 {
			dx[i] += dy[i]
		}
	}
}

func tanhBackwardGo(dx, dy, y []float32) {
	for i, v := range y {
		dx[i] = fma(dy[i], fma(-v, v, 1), dx[i])
	}
}

func sigmoidBackwardGo(dx, dy, y []float32) {
	for i, v := range y {
		dx[i] = fma(dy[i], fma(-v, v, v), dx[i])
	}
}

func softplusBackwardGo(dx, dy, x []float32) {
	for i, v := range x {
		dx[i] = fma(dy[i], sigmoid32(v), dx[i])
	}
}

func clampBackwardGo(dx, dy, x []float32, lo, hi float32) {
	for i, v := range x {
		if lo <= v && v <= hi {
			dx[i] += dy[i]
		}
	}
}

func minBackwardGo(da, db, dy, a, b []float32) {
	for i, v := range dy {
		if a[i] <= b[i] {
			da[i] += v
		} else {
			db[i] += v
		}
	}
}

func maxBackwardGo(da, db, dy, a, b []float32) {
	for i, v := range dy {
		if b[i] <= a[i] {
			da[i] += v
		} else {
			db[i] += v
		}
	}
}

func reluGradGo(dy, y []float32) {
	for i, v := range y {
		if !(v > 0) {
			dy[i] = 0
		}
	}
}

func tanhGradGo(dy, y []float32) {
	for i, v := range y {
		dy[i] *= fma(-v, v, 1)
	}
}

func adamGo(w, grad, m, v []float32, decay1, gain1, decay2, gain2, rate, eps, keep float32) {
	for i, g := range grad {
		m[i] = float32(decay1*m[i]) + float32(gain1*g)
		v[i] = float32(decay2*v[i]) + float32(gain2*float32(g*g))
		step := float32(rate*m[i]) / (float32(math.Sqrt(float64(v[i]))) + eps)
		w[i] = float32(keep*w[i]) - step
	}
}
