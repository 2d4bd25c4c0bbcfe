#include "textflag.h"

// func convert(dst *float32, from *byte, n int)
TEXT ·convert(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ n+16(FP), CX
	PXOR X0, X0

next:
	MOVOU     (SI), X1
	MOVO      X1, X2
	PUNPCKLBW X0, X1
	PUNPCKHBW X0, X2
	MOVO      X1, X3
	PUNPCKLWL X0, X1
	PUNPCKHWL X0, X3
	MOVO      X2, X4
	PUNPCKLWL X0, X2
	PUNPCKHWL X0, X4
	CVTPL2PS  X1, X1
	CVTPL2PS  X3, X3
	CVTPL2PS  X2, X2
	CVTPL2PS  X4, X4
	MOVUPS    X1, (DI)
	MOVUPS    X3, 16(DI)
	MOVUPS    X2, 32(DI)
	MOVUPS    X4, 48(DI)
	ADDQ      $16, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       next
	RET

// func odd(from *byte, n int) bool
TEXT ·odd(SB), NOSPLIT, $0-17
	MOVQ   from+0(FP), SI
	MOVQ   n+8(FP), CX
	MOVL   $0x7f800000, AX
	MOVQ   AX, X0
	PSHUFD $0, X0, X0
	PXOR   X1, X1

next:
	MOVOU   (SI), X2
	MOVOU   16(SI), X3
	MOVOU   32(SI), X4
	MOVOU   48(SI), X5
	PAND    X0, X2
	PAND    X0, X3
	PAND    X0, X4
	PAND    X0, X5
	PCMPEQL X0, X2
	PCMPEQL X0, X3
	PCMPEQL X0, X4
	PCMPEQL X0, X5
	POR     X2, X1
	POR     X3, X4
	POR     X5, X1
	POR     X4, X1
	ADDQ    $64, SI
	SUBQ    $64, CX
	JNZ     next

	PMOVMSKB X1, AX
	TESTL    AX, AX
	SETNE    ret+16(FP)
	RET

// func pause(n int)
TEXT ·pause(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX

next:
	PAUSE
	SUBQ $1, CX
	JNZ  next
	RET
