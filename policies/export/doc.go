// Package export writes a trained policy to files that act without it: ONNX, Go source without
// dependencies, and safetensors.
//
//	meta := export.Meta{Algorithm: "ppo", Env: "CartPole-v1"}
//	err := export.WriteFile("policy.onnx", func(w io.Writer) error { return export.ONNX(w, policy, meta) })
//	err = export.WriteFile("cartpole/policy.go", func(w io.Writer) error {
//		return export.Go(w, policy, export.GoConfig{Package: "cartpole", Meta: meta})
//	})
//	err = export.WriteFile("policy.safetensors", func(w io.Writer) error { return export.Safetensors(w, policy, meta) })
//
// The files compute the action that Act chooses with Greedy set, from the weights that the policy has at the
// time of the call: a policy is a [policies.Exporter], which describes its computation as a [graph.Graph]
// ([Graph]). Normalised observations are part of it: all files take raw ones. Observations must be finite;
// the results for others are undefined.
//
// # Concurrency and errors
//
// Functions use the policy as any of its methods does, and must not run at the same time as one. A policy
// that is not an Exporter, or cannot be exported, is an error that wraps [graph.ErrUnsupported]; weights that
// are not finite are an error that names them. Nothing is written then. The same policy and config give the
// same bytes.
//
// # The files
//
// ONNX: IR version 8, operators of opset 17 of the default domain, float32. The inputs are obs [N, size] and, of
// a recurrent policy, state [N, size]; the outputs are action, the values that it is chosen from
// (q_values, logits or mean), and next_state. N is any number. Initialisers have the names and shapes that the tensors have in
// the policy's Weights. The metadata are those of [Meta] and both spaces. docs/export.md has all details.
package export
