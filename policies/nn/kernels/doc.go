// Package kernels has the computations of neural networks, in float32:
// products of matrices, dense layers, elementwise functions, optimiser steps.
//
//	var w kernels.Workspace
//	kernels.Dense(&w, hidden, x, weight1, bias1, kernels.ActTanh)
//	kernels.Dense(&w, y, hidden, weight2, bias2, kernels.ActIdentity)
//	...
//	kernels.DenseBackward(&w, dhidden, dweight2, dbias2, dy, hidden, y, weight2, kernels.ActIdentity)
//	kernels.DenseBackward(&w, kernels.Matrix{}, dweight1, dbias1, dhidden, x, hidden, weight1, kernels.ActTanh)
//
// The destination comes first. All memory is the caller's; scratch memory is in a
// [Workspace]. In the steady state nothing is allocated. Only [Workers] start
// goroutines. A destination may be the same slice as an operand in elementwise
// functions, but must not overlap it otherwise.
//
// # Processors
//
// The kernels use AVX-512 (F, VL, DQ, BW) or AVX2 with FMA, whichever this
// processor has, and plain Go elsewhere. The same arguments give the same bits on
// the same kind of processor, whatever their alignment. AVX2 and AVX-512 give the
// same bits as each other. Plain Go gives the same bits too, with two exceptions:
// denormals, and products of matrices ([Gemm], [Dense], [DenseRows], [DenseBackward]), in which
// plain Go may round a product before the addition. There, a sum of k products
// differs by at most k*2^-22 of the sum of their magnitudes.
//
// # Denormals
//
// A denormal is a number other than 0 below 2^-126 in magnitude. Many processors
// need some hundred cycles for each, which makes an update many times slower. With
// AVX2 or AVX-512, products of matrices,
// [Adam], [Polyak], [Scale], [Axpy] and the functions for gradients take denormals
// as 0 and return 0 instead of them. They restore the processor's mode before
// they return. The other functions treat denormals as they are.
//
// # Precision
//
// [Exp], [Log], [Tanh], [Sigmoid] and [Softplus] use their own polynomials after
// a reduction of the argument. Their errors are measured against float64 for every
// 31st float32. A unit in the last place is the distance of neighbouring float32
// at the exact result.
//
// # Errors
//
// Dimensions or lengths that do not match are mistakes of the program: the
// functions panic with "kernels: " and the name of the function. Values that are
// not finite are no errors and propagate as IEEE 754 says.
//
// # Concurrency
//
// Functions share no state. They can run at the same time on different memory. With
// [Workers] large products use several processors, and give the same bits.
package kernels
