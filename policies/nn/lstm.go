package nn

import (
	"math"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// LSTM returns a recurrent layer of hidden columns, a long short-term memory:
//
//	i = sigmoid(x Wi + bi + h Ui + ci)    input gate
//	f = sigmoid(x Wf + bf + h Uf + cf)    forget gate
//	g = tanh(x Wg + bg + h Ug + cg)       new content
//	o = sigmoid(x Wo + bo + h Uo + co)    output gate
//	c' = f * c + i * g
//	h' = o * tanh(c')
//
// These are PyTorch's equations. The state has 2*hidden columns, h and then c; the output is h'.
// The weights weight_input (W, in x 4 hidden), weight_hidden (U), bias_input (b) and bias_hidden
// (c) hold the gates in the order i, f, g, o, PyTorch's too. init fills both weights, and the
// biases are zero; with nil, weights and biases are uniform in +-1/sqrt(hidden), as in PyTorch.
//
// S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory" (1997), with the forget gate of
// F. A. Gers et al., "Learning to Forget" (2000).
func LSTM(hidden int, init Init) Layer { return newRecurrent("lstm", lstm{}, hidden, init) }

// hiddenUniform is PyTorch's initialisation of recurrent layers.
func hiddenUniform(hidden int) Init { return Uniform(1 / math.Sqrt(float64(hidden))) }

type lstm struct{}

func (lstm) sizes(hidden int) (gates, state, saved int) { return 4 * hidden, 2 * hidden, 5 * hidden }

// forward saves the gates and tanh(c').
func (lstm) forward(next, saved, x, h, before []float32) {
	n := len(next) / 2
	gates, bend := saved[:4*n], saved[4*n:]
	for j := range gates {
		gates[j] = x[j] + h[j]
	}
	kernels.Sigmoid(gates[:2*n], gates[:2*n])
	kernels.Tanh(gates[2*n:3*n], gates[2*n:3*n])
	kernels.Sigmoid(gates[3*n:], gates[3*n:])
	i, f, g, o := gates[:n], gates[n:2*n], gates[2*n:3*n], gates[3*n:]
	out, cell := next[:n], next[n:]
	for j, c := range before[n:] {
		cell[j] = f[j]*c + i[j]*g[j]
	}
	kernels.Tanh(bend, cell)
	for j, y := range bend {
		out[j] = o[j] * y
	}
}

func (lstm) backward(dx, dh, d, saved, before []float32) {
	n := len(d) / 2
	i, f, g, o, bend := saved[:n], saved[n:2*n], saved[2*n:3*n], saved[3*n:4*n], saved[4*n:]
	for j, c := range before[n:] {
		out, cell := d[j], d[n+j]
		cell += out * o[j] * (1 - bend[j]*bend[j])
		dh[j] = cell * g[j] * i[j] * (1 - i[j])
		dh[n+j] = cell * c * f[j] * (1 - f[j])
		dh[2*n+j] = cell * i[j] * (1 - g[j]*g[j])
		dh[3*n+j] = out * bend[j] * o[j] * (1 - o[j])
		d[j], d[n+j] = 0, cell*f[j]
	}
	for j, v := range dh {
		dx[j] += v
	}
}
