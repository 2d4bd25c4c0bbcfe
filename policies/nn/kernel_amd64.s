#include "textflag.h"

// func kernelAVX2(k int, a *float32, aRow, aCol int, panel *float32, panelRow int, c *float32, cRow int)
//
// Y0..Y7 hold the tile, two registers a row. Each turn of the loop loads 16
// values of the panel, broadcasts one value of each row of a, and does eight
// fused multiply-adds.
TEXT ·kernelAVX2(SB), NOSPLIT, $0-64
	MOVQ k+0(FP), CX
	MOVQ a+8(FP), SI
	MOVQ aRow+16(FP), R8
	MOVQ aCol+24(FP), R9
	MOVQ panel+32(FP), DI
	MOVQ panelRow+40(FP), R10
	MOVQ c+48(FP), DX
	MOVQ cRow+56(FP), R11
	SHLQ $2, R8
	SHLQ $2, R9
	SHLQ $2, R10
	SHLQ $2, R11
	LEAQ (R8)(R8*2), R12  // three rows of a
	LEAQ (DX)(R11*1), R13 // row 1 of c
	LEAQ (DX)(R11*2), AX  // row 2
	LEAQ (R13)(R11*2), BX // row 3
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y1
	VMOVUPS (R13), Y2
	VMOVUPS 32(R13), Y3
	VMOVUPS (AX), Y4
	VMOVUPS 32(AX), Y5
	VMOVUPS (BX), Y6
	VMOVUPS 32(BX), Y7

loop:
	VMOVUPS (DI), Y8
	VMOVUPS 32(DI), Y9
	VBROADCASTSS (SI), Y10
	VBROADCASTSS (SI)(R8*1), Y11
	VBROADCASTSS (SI)(R8*2), Y12
	VBROADCASTSS (SI)(R12*1), Y13
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y1
	VFMADD231PS Y8, Y11, Y2
	VFMADD231PS Y9, Y11, Y3
	VFMADD231PS Y8, Y12, Y4
	VFMADD231PS Y9, Y12, Y5
	VFMADD231PS Y8, Y13, Y6
	VFMADD231PS Y9, Y13, Y7
	ADDQ R9, SI
	ADDQ R10, DI
	DECQ CX
	JNZ  loop

	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VMOVUPS Y2, (R13)
	VMOVUPS Y3, 32(R13)
	VMOVUPS Y4, (AX)
	VMOVUPS Y5, 32(AX)
	VMOVUPS Y6, (BX)
	VMOVUPS Y7, 32(BX)
	VZEROUPPER
	RET

// func adamAVX2(n int, weights, grad, m, v *float32, s *adamScalars)
//
// n is a multiple of 8 and not 0. The order of operations is that of adamGo,
// and nothing is fused, so that both give the same bits.
TEXT ·adamAVX2(SB), NOSPLIT, $0-48
	MOVQ n+0(FP), CX
	MOVQ weights+8(FP), DI
	MOVQ grad+16(FP), SI
	MOVQ m+24(FP), R8
	MOVQ v+32(FP), R9
	MOVQ s+40(FP), DX
	VBROADCASTSS 0(DX), Y8   // decay1
	VBROADCASTSS 4(DX), Y9   // gain1
	VBROADCASTSS 8(DX), Y10  // decay2
	VBROADCASTSS 12(DX), Y11 // gain2
	VBROADCASTSS 16(DX), Y12 // rate
	VBROADCASTSS 20(DX), Y13 // eps

adam:
	VMOVUPS (SI), Y0
	VMULPS (R8), Y8, Y1
	VMULPS Y0, Y9, Y2
	VADDPS Y2, Y1, Y1 // m
	VMOVUPS Y1, (R8)
	VMULPS Y0, Y0, Y2
	VMULPS Y2, Y11, Y2
	VMULPS (R9), Y10, Y3
	VADDPS Y2, Y3, Y3 // v
	VMOVUPS Y3, (R9)
	VSQRTPS Y3, Y3
	VADDPS Y13, Y3, Y3
	VMULPS Y1, Y12, Y1
	VDIVPS Y3, Y1, Y1
	VMOVUPS (DI), Y0
	VSUBPS Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, R8
	ADDQ $32, R9
	SUBQ $8, CX
	JNZ  adam

	VZEROUPPER
	RET
