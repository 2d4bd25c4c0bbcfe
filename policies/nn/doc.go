// Package nn trains small dense networks on one core: layers, losses,
// optimisers, and their weights as data.
//
//	net := nn.New(4, 7, nn.Dense(128, nn.Kaiming), nn.ReLU(), nn.Dense(2, nn.Kaiming)) // 4 inputs, seed 7
//	adam := nn.NewAdam(nn.AdamConfig{Rate: 1e-3}, net.Size())
//	q := net.Forward(nn.Matrix{Rows: 64, Cols: 4, Data: obs})    // 64 x 2
//	loss := nn.Huber(q.Data, targets, grad)
//	net.ZeroGrad()
//	net.Backward(nn.Matrix{Rows: 64, Cols: 2, Data: grad})
//	nn.ClipNorm(net.Grad(), 10)
//	adam.Step(net.Weights(), net.Grad())
//
// Everything is float32. All weights of a network lie in one slice, and so do
// all gradients; layers and named [Param] are views into them, so that an
// optimiser, a target network or a checkpoint is one loop over one slice.
//
// # Memory
//
// A network keeps its activations and grows them to the largest batch that it
// has seen; after that, forward, backward and optimiser steps allocate
// nothing. Results belong to the network and are overwritten by its next call.
//
// # Concurrency and determinism
//
// A network is not safe for concurrent use; give each goroutine its own. It
// starts no goroutine. The same seed and inputs give the same bits on the same
// kind of processor: products use AVX2 and FMA where the processor has them,
// and plain Go elsewhere, which rounds differently.
//
// # Errors
//
// Wrong dimensions are a programmer's mistake and panic. What comes from
// outside, a [State] or a file, returns errors that name the tensor.
package nn
