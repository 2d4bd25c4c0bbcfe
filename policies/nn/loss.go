package nn

import (
	"fmt"
	"math"
)

// A loss takes predictions and targets of one length, writes the derivative of
// the mean loss by each prediction to grad, and returns the mean loss.

// MSE is the mean of (pred-target)^2.
func MSE(pred, target, grad []float32) float32 {
	checkLoss(pred, target, grad)
	scale := 2 / float32(len(pred))
	var sum float64
	for i, p := range pred {
		d := p - target[i]
		sum += float64(d) * float64(d)
		grad[i] = scale * d
	}
	return float32(sum / float64(len(pred)))
}

// Huber is the mean of d^2/2 where |d| <= 1 and |d|-1/2 elsewhere, with
// d = pred-target: a loss whose gradient is clipped to +-1. P. J. Huber,
// "Robust Estimation of a Location Parameter" (1964), with delta 1 as in
// V. Mnih et al. (2015) and PyTorch's smooth_l1_loss.
func Huber(pred, target, grad []float32) float32 {
	checkLoss(pred, target, grad)
	scale := 1 / float32(len(pred))
	var sum float64
	for i, p := range pred {
		d := p - target[i]
		if a := math.Abs(float64(d)); a > 1 {
			sum += a - 0.5
			d = float32(math.Copysign(1, float64(d)))
		} else {
			sum += a * a / 2
		}
		grad[i] = scale * d
	}
	return float32(sum / float64(len(pred)))
}

func checkLoss(pred, target, grad []float32) {
	if len(pred) == 0 || len(target) != len(pred) || len(grad) != len(pred) {
		panic(fmt.Sprintf("nn: loss of %d predictions, %d targets, %d gradients", len(pred), len(target), len(grad)))
	}
}
