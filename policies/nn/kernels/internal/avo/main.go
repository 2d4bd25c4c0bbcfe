// Command avo writes the assembly of package kernels, the declarations of its
// functions, and the methods that choose between them and plain Go.
// "go generate" in package kernels runs it:
//
//	go run . -out ../../kernels_amd64.s -stubs ../../stubs_amd64.go -pkg kernels -dispatch ../..
//
// Each kernel is written once, over an abstract vector (see isa), and printed
// twice: with 16 lanes for AVX-512 and with 8 lanes for AVX2 and FMA.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	dir := flag.String("dispatch", "", "`folder` of the files dispatch_amd64.go and dispatch_other.go")
	flag.Parse()
	if *dir != "" {
		if err := writeDispatch(*dir, elementwise); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ConstraintExpr("amd64")
	maskTable()
	for _, wide := range []bool{true, false} {
		v := &isa{wide: wide}
		for _, k := range elementwise {
			v.elementwise(k)
		}
		v.sumSquares()
		v.softmax("softmax", false)
		v.softmax("logSoftmax", true)
		for _, vecs := range []int{1, 2, 4} {
			v.gemm(vecs)
		}
		v.pack(1)
		v.pack(2)
		if wide {
			v.pack(4)
		}
	}
	transpose()
	Generate()
}
