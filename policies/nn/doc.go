// Package nn trains small networks on one core: layers, a tape that
// differentiates losses, optimisers, and weights as data.
//
//	net := nn.New(4, 7, nn.Dense(128, nn.Kaiming), nn.ReLU(), nn.Dense(2, nn.Kaiming)) // 4 inputs, seed 7
//	y := net.Forward(nn.Matrix{Rows: 1, Cols: 4, Data: obs})                           // to act: 1 x 2
//	trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 10}, net)
//	step, err := trainer.Step(func(t *nn.Tape) nn.Value {                               // to learn
//		values := net.Apply(t, t.Const(64, 4, batch))
//		return values.Pick(actions).Sub(t.Column(targets)).Huber(1).Mean()
//	})
//
// Everything is float32. All weights of a network lie in one slice, and so do
// all gradients; layers and named [Param] are views into them, so that an
// optimiser, a target network or a checkpoint is one loop over one slice.
//
// # Recurrent networks
//
// A network with [LSTM] or [GRU] among its layers has a state, which its caller holds: one row
// of [Net.StateSize] numbers for each environment. A policy acts with [Net.Step], which replaces
// the state, and learns with [Net.Unroll] from sequences of rows (row = sequence*T + step), each
// from the state that it had when it was collected:
//
//	y := core.Step(obs, act.State, act.Reset)                             // act: state in and out
//	y, _ := core.Unroll(t, x, t.Const(n, core.StateSize(), first), reset) // learn: n sequences
//	values := critic.Apply(t, y)                                          // a network on its output
//
// A reset marks the first step of an episode: the state before it is zero. Both calls work for
// networks without a state, with no columns of it, so that a policy needs no second form.
//
// # Memory
//
// A network, a tape and a trainer keep their memory and grow it to the largest batch that they
// have seen; after that, forward, backward and optimiser steps allocate nothing. Results belong to
// the network or the tape: Net.Forward and Net.Step overwrite them with their next call,
// Tape.Reset gives them up.
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
// Wrong dimensions are a programmer's mistake and panic. Faults in data from
// outside, a [State] or a file, are errors that name the tensor.
package nn
