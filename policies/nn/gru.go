package nn

import "github.com/ditask/ditask/policies/nn/kernels"

// GRU returns a recurrent layer of hidden columns, a gated recurrent unit:
//
//	r = sigmoid(x Wr + br + h Ur + cr)    reset gate
//	z = sigmoid(x Wz + bz + h Uz + cz)    update gate
//	n = tanh(x Wn + bn + r * (h Un + cn)) new content
//	h' = (1 - z) * n + z * h
//
// These are PyTorch's equations; the original paper applies r to h, before the product with Un.
// The state is h, and h' is the output. The weights weight_input (W, in x 3 hidden),
// weight_hidden (U), bias_input (b) and bias_hidden (c) hold the gates in the order r, z, n,
// PyTorch's too. init fills both weights, and the biases are zero; with nil, weights and biases
// are uniform in +-1/sqrt(hidden), as in PyTorch.
//
// K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical
// Machine Translation" (2014).
func GRU(hidden int, init Init) Layer { return newRecurrent("gru", gru{}, hidden, init) }

type gru struct{}

func (gru) sizes(hidden int) (gates, state, saved int) { return 3 * hidden, hidden, 4 * hidden }

// forward saves the gates and h Un + cn.
func (gru) forward(next, saved, x, h, before []float32) {
	n := len(next)
	gates, inner := saved[:3*n], saved[3*n:]
	for j := range 2 * n {
		gates[j] = x[j] + h[j]
	}
	kernels.Sigmoid(gates[:2*n], gates[:2*n])
	copy(inner, h[2*n:])
	for j, v := range inner {
		gates[2*n+j] = x[2*n+j] + gates[j]*v
	}
	kernels.Tanh(gates[2*n:], gates[2*n:])
	z, fresh := gates[n:2*n], gates[2*n:]
	for j, old := range before {
		next[j] = (1-z[j])*fresh[j] + z[j]*old
	}
}

func (gru) backward(dx, dh, d, saved, before []float32) {
	n := len(d)
	r, z, fresh, inner := saved[:n], saved[n:2*n], saved[2*n:3*n], saved[3*n:]
	for j, old := range before {
		bend := d[j] * (1 - z[j]) * (1 - fresh[j]*fresh[j]) // by the argument of tanh
		dh[j] = bend * inner[j] * r[j] * (1 - r[j])
		dh[n+j] = d[j] * (old - fresh[j]) * z[j] * (1 - z[j])
		dh[2*n+j] = bend * r[j]
		dx[j] += dh[j]
		dx[n+j] += dh[n+j]
		dx[2*n+j] += bend
		d[j] *= z[j]
	}
}
