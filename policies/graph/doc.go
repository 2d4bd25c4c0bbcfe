// Package graph describes the computation of a policy's greedy actions: a graph of operations from a batch
// of observations to actions, as data that package export writes to files.
//
//	g := graph.New()
//	obs := g.Input(graph.Obs, 4)
//	hidden := obs.Dense(g.Constant("w1", w1, 4, 64), g.Constant("b1", b1, 64)).Tanh()
//	logits := hidden.Dense(g.Constant("w2", w2, 64, 2), g.Constant("b2", b2, 2))
//	g.Output("logits", logits)
//	g.Output(graph.Action, logits.ArgMax().Reshape())
//	g.Prune()
//	err := g.Check()                 // names, finite constants, an action
//	for _, n := range g.Nodes { ... } // in an order in which each node reads only earlier ones
//
// A policy does not write this by hand: a network of package nn adds its own operations
// (nn.Net.Export), and a policy adds the rest in policies.Exporter.
//
// # Values
//
// A [Value] is a batch of rows. Its [Node.Shape] is that of one row: the first dimension of the batch, N, is
// left out and is any number. A constant has no batch. Values are float32, in row-major order, except for the
// int64 numbers of [Value.ArgMax]. An operation of two values goes element by element; the second operand
// is repeated if it has fewer elements, as a bias is for each row.
//
// # Concurrency and errors
//
// A Graph is not safe for concurrent use while it is built. Shapes that do not fit are a mistake of the
// program and panic with "graph: " and the operation. Faults in data, such as weights that are not
// finite, are errors of [Graph.Check]. [ErrUnsupported] is wrapped by the error of a policy or a layer
// that cannot be described so.
package graph
