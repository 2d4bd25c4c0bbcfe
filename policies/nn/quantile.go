package nn

import (
	"fmt"
	"math"
)

// QuantileHuber returns the loss of each row of v as quantiles of the distribution of which the same row
// of targets is a sample: one column. Column i of n estimates the quantile of tau_i = (2i+1)/2n,
// counted from 0. With u = target_j - v_i and the Huber function of kappa,
//
//	loss = sum over i of the mean over j of |tau_i - (1 if u < 0)| huber(u).
//
// targets may have another number of columns than v. They are constants: no gradient flows to them.
//
// W. Dabney et al., "Distributional Reinforcement Learning with Quantile Regression" (2018), equation
// 10 and algorithm 1. It is one operation because it has a term for each pair of columns of each row,
// which no matrix holds.
func (v Value) QuantileHuber(targets Value, kappa float32) Value {
	a, b := v.node(), targets.node()
	if a.rows != b.rows || a.cols == 0 || b.cols == 0 || v.t != targets.t || kappa <= 0 {
		panic(fmt.Sprintf("nn: quantiles of %d x %d with targets of %d x %d and kappa %v", a.rows, a.cols, b.rows, b.cols, kappa))
	}
	out, n := v.t.result(quantileHuber{}, a.rows, 1, v, v)
	n.aux = v.t.memory.take(len(v.node().data)) // derivatives by v
	quantiles, samples := v.node().matrix(), targets.node().matrix()
	for i := range n.rows {
		n.data[i] = quantileLoss(n.aux[i*quantiles.Cols:], quantiles.Row(i), samples.Row(i), kappa)
	}
	return out
}

// quantileLoss returns the loss of one row, and writes its derivatives by the quantiles.
func quantileLoss(slopes, quantiles, samples []float32, kappa float32) float32 {
	var total float64
	for i, q := range quantiles {
		tau := float32(2*i+1) / float32(2*len(quantiles))
		more := 1 - 2*tau // of the factor, where u < 0
		var loss, slope float32
		for _, s := range samples {
			// The sign bit, 1 if u < 0, chooses the factor without a branch, which would be mispredicted
			// for half of the pairs. That of -0 changes nothing, since the loss is 0 there.
			const sign = 31
			u := math.Float32bits(s - q)
			below, distance := float32(u>>sign), math.Float32frombits(u&^(1<<sign))
			clipped := min(distance, kappa)
			loss += (tau + below*more) * clipped * (distance - clipped/2)
			slope += (below - tau) * clipped
		}
		total += float64(loss)
		slopes[i] = slope / float32(len(samples))
	}
	return float32(total / float64(len(samples)))
}

type quantileHuber struct{}

func (quantileHuber) backward(t *Tape, n *node) {
	d, cols := t.gradOf(n.a), t.nodes[n.a].cols
	for i, g := range n.grad {
		for k := i * cols; k < (i+1)*cols; k++ {
			d[k] += g * n.aux[k]
		}
	}
}
