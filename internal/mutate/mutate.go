package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// A mutation replaces one range of bytes of a source file.
type mutation struct {
	file       string
	source     []byte // of the whole file
	line       int
	kind       string
	start, end int // offsets into the source
	text       string
}

func (m mutation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s  =>  %s", m.file, m.line, m.kind, oneLine(string(m.source[m.start:m.end])), oneLine(m.text))
}

// oneLine returns the beginning of a source text, without its line breaks.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "(nothing)"
	}
	if r := []rune(text); len(r) > 90 {
		return string(r[:90]) + "..."
	}
	return text
}

// mutant returns the source with the mutation in it.
func (m mutation) mutant() []byte {
	return slices.Concat(m.source[:m.start], []byte(m.text), m.source[m.end:])
}

// swaps are the operators that a mutation puts instead of others.
var swaps = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
}

// mutationsOf returns the mutations of a file, in the order of the file. It
// returns none for a generated file.
func mutationsOf(name string, source []byte) ([]mutation, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	f := &finder{name: name, source: source, file: files.File(file.Pos())}
	for _, d := range file.Decls {
		ast.Inspect(d, f.visit)
	}
	return f.found, nil
}

// finder collects the mutations of a file.
type finder struct {
	name   string
	source []byte
	file   *token.File
	found  []mutation
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.file.Offset(n.Pos()):f.file.Offset(n.End())])
}

func (f *finder) replace(n ast.Node, kind, text string) {
	f.found = append(f.found, mutation{
		file: f.name, source: f.source, line: f.file.Line(n.Pos()), kind: kind,
		start: f.file.Offset(n.Pos()), end: f.file.Offset(n.End()), text: text,
	})
}

// visit adds the mutations of one node.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		// The condition stays in the source, so that its variables are used.
		f.replace(n.Cond, "always true", "("+f.text(n.Cond)+") || true")
		f.replace(n.Cond, "always false", "("+f.text(n.Cond)+") && false")
	case *ast.ForStmt:
		if n.Cond != nil {
			f.replace(n.Cond, "loop left out", "("+f.text(n.Cond)+") && false")
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.replace(n, "not", f.text(n.X))
		}
	case *ast.CallExpr:
		f.call(n)
	case *ast.ReturnStmt:
		f.result(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
	return true
}

// binary swaps an operator, or leaves out an operand of a condition.
func (f *finder) binary(n *ast.BinaryExpr) {
	if n.Op == token.LAND || n.Op == token.LOR {
		f.replace(n, "operand left out", f.text(n.X))
		f.replace(n, "operand left out", f.text(n.Y))
		return
	}
	if other, ok := swaps[n.Op]; ok {
		f.replace(n, "operator", f.text(n.X)+" "+other+" "+f.text(n.Y))
	}
}

// call takes the other one of min and max.
func (f *finder) call(n *ast.CallExpr) {
	name, ok := n.Fun.(*ast.Ident)
	switch {
	case ok && name.Name == "min":
		f.replace(name, "bound", "max")
	case ok && name.Name == "max":
		f.replace(name, "bound", "min")
	}
}

// result inverts a boolean result and drops an error.
func (f *finder) result(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	switch text := f.text(last); {
	case text == "true":
		f.replace(last, "result", "false")
	case text == "false":
		f.replace(last, "result", "true")
	case strings.HasPrefix(text, "err"), strings.HasPrefix(text, "fmt.Errorf("):
		f.replace(last, "error dropped", "nil")
	}
}

// statements leaves out the statements that can be left out of a list.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.BranchStmt:
			f.replace(s, "statement left out", "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.replace(s, "statement left out", "")
			}
		case *ast.ReturnStmt:
			if len(s.Results) == 0 {
				f.replace(s, "statement left out", "")
			}
		}
	}
}
