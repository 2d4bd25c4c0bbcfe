package data

import (
	"encoding/json"
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// PutRows adds the first n rows of b to an archive: a tensor "name/column" for each column, and the
// columns' kinds as a word. The archive shares the memory of b. It is for sources that keep rows, such
// as those of a program's own.
func PutRows(a *nn.Archive, name string, b *policies.Batch, n int) error {
	kinds := map[string]policies.Kind{}
	var s nn.State
	s.Version = uint64(n)
	for i := range b.Columns {
		c := &b.Columns[i]
		size := n * c.Width()
		t := nn.Tensor{Name: c.Name, Shape: append([]int{n}, c.Shape...)}
		switch c.Kind {
		case policies.Float32:
			t.Data = c.Floats[:size]
		case policies.Int32:
			t.Ints = c.Ints[:size]
		case policies.Uint8, policies.Bool:
			t.Bytes = c.Bytes[:size]
		case policies.Uint64:
			t.Words = c.Words[:size]
		}
		kinds[c.Name] = c.Kind
		s.Tensors = append(s.Tensors, t)
	}
	text, err := json.Marshal(kinds)
	if err != nil {
		return fmt.Errorf("columns of %s: %w", name, err)
	}
	a.SetText(name+"/kinds", string(text))
	a.Put(name, s)
	return nil
}

// RowsOf returns the batch that PutRows added. It shares the memory of the archive. Rows that do not fit
// their columns are an error.
func RowsOf(a *nn.Archive, name string) (*policies.Batch, error) {
	s, err := a.State(name)
	if err != nil {
		return nil, err
	}
	var kinds map[string]policies.Kind
	if err := json.Unmarshal([]byte(a.Meta[name+"/kinds"]), &kinds); err != nil {
		return nil, fmt.Errorf("columns of %s: %w", name, err)
	}
	b := &policies.Batch{N: int(s.Version)}
	var schema []policies.Column
	for _, t := range s.Tensors {
		if len(t.Shape) == 0 {
			return nil, fmt.Errorf("column %s of %s has no rows", t.Name, name)
		}
		c := policies.Column{Name: t.Name, Kind: kinds[t.Name], Shape: t.Shape[1:]}
		b.Columns = append(b.Columns, policies.Block{Column: c, Floats: t.Data, Ints: t.Ints, Bytes: t.Bytes, Words: t.Words})
		schema = append(schema, c)
	}
	if err := b.Check(schema...); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
