// Package onnxtest reads and runs ONNX models in tests. It shares no code with package export, which writes
// them, so that an error of one is not repeated by the other.
//
//	m, err := onnxtest.Parse(file)
//	out, err := m.Run(map[string]onnxtest.Tensor{"obs": {Shape: []int{2, 4}, Floats: obs}})
//	actions := out["action"].Ints
//
// It knows the operators of opset 17 that the policies need, with float32 values, whose sums are computed in
// float64. [Parse] is strict: a field, an operator or an attribute that it does not know is an error, and so
// is what a runtime might let pass, such as a value that is defined twice. [Python] runs a second
// implementation, a script that uses Python's standard library only.
//
// A Model may be used concurrently. Errors name the node; bad files do not panic, and a run works on at most
// 2^22 values at a time and makes at most 2^26 products in one operator.
package onnxtest
