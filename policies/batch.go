package policies

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ditask/ditask/policies/nn"
)

// Batch is N rows of named columns, each in one block of memory. It is the form in which data
// travels, rests in a buffer or a file, and is learned from: adding a column changes no code in
// between. The zero value is ready for Init.
type Batch struct {
	N       int // rows
	Columns []Block
}

// Block is the content of one column: N times [Column.Width] values, in the slice of its kind.
type Block struct {
	Column
	Floats []float32 // Float32
	Ints   []int32   // Int32
	Bytes  []uint8   // Uint8 and Bool
	Words  []uint64  // Uint64
}

// Init empties the batch and sets its columns; the memory of columns that stay is kept.
func (b *Batch) Init(columns ...Column) {
	b.N = 0
	same := len(columns) == len(b.Columns)
	for i := range b.Columns {
		same = same && b.Columns[i].same(&columns[i])
	}
	if !same {
		b.Columns = make([]Block, len(columns))
		for i, c := range columns {
			b.Columns[i].Column = c
		}
	}
	b.Resize(0)
}

// InitLike is Init with the columns of another batch.
func (b *Batch) InitLike(src *Batch) {
	b.N = 0
	if b.like(src) != nil {
		b.Columns = make([]Block, len(src.Columns))
		for i := range src.Columns {
			b.Columns[i].Column = src.Columns[i].Column
		}
	}
	b.Resize(0)
}

// Resize gives the batch n rows. Those that are new have undefined content; memory is kept.
func (b *Batch) Resize(n int) {
	for i := range b.Columns {
		c := &b.Columns[i]
		size := n * c.Width()
		switch c.Kind {
		case Float32:
			c.Floats = resize(c.Floats, size)
		case Int32:
			c.Ints = resize(c.Ints, size)
		case Uint8, Bool:
			c.Bytes = resize(c.Bytes, size)
		case Uint64:
			c.Words = resize(c.Words, size)
		}
	}
	b.N = n
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(make([]T, 0, max(n, 2*cap(s))), s...)[:n]
	}
	return s[:n]
}

// Len returns the number of rows.
func (b *Batch) Len() int { return b.N }

// Column returns the column of that name, or nil.
func (b *Batch) Column(name string) *Block {
	for i := range b.Columns {
		if b.Columns[i].Name == name {
			return &b.Columns[i]
		}
	}
	return nil
}

// Floats returns the values of a Float32 column, or nil if there is none of that name.
func (b *Batch) Floats(name string) []float32 {
	if c := b.Column(name); c != nil {
		return c.Floats
	}
	return nil
}

// Bytes returns the values of an Uint8 or Bool column, or nil.
func (b *Batch) Bytes(name string) []uint8 {
	if c := b.Column(name); c != nil {
		return c.Bytes
	}
	return nil
}

// Ints returns the values of an Int32 column, or nil.
func (b *Batch) Ints(name string) []int32 {
	if c := b.Column(name); c != nil {
		return c.Ints
	}
	return nil
}

// Words returns the values of an Uint64 column, or nil.
func (b *Batch) Words(name string) []uint64 {
	if c := b.Column(name); c != nil {
		return c.Words
	}
	return nil
}

// like reports how the columns of two batches differ, which must be the same in the same order.
func (b *Batch) like(src *Batch) error {
	if len(b.Columns) != len(src.Columns) {
		return fmt.Errorf("batch of %d columns, want %d", len(src.Columns), len(b.Columns))
	}
	for i := range b.Columns {
		if x, y := &b.Columns[i].Column, &src.Columns[i].Column; !x.same(y) {
			return fmt.Errorf("batch with the column %v, want %v", *y, *x)
		}
	}
	return nil
}

// mustLike panics if the columns differ.
func (b *Batch) mustLike(src *Batch) {
	if err := b.like(src); err != nil {
		panic("policies: " + err.Error())
	}
}

// CopyRows makes rows at, at+1, ... equal to the rows of src whose numbers are listed. The batch
// must have the columns of src, and may have others behind them, which stay as they are.
func (b *Batch) CopyRows(at int, src *Batch, rows ...int) {
	if len(b.Columns) < len(src.Columns) {
		b.mustLike(src)
	}
	prefix := Batch{Columns: b.Columns[:len(src.Columns)]}
	prefix.mustLike(src)
	for i := range src.Columns {
		d, s := &b.Columns[i], &src.Columns[i]
		w := d.Width()
		switch d.Kind {
		case Float32:
			gather(d.Floats[at*w:], s.Floats, w, rows)
		case Int32:
			gather(d.Ints[at*w:], s.Ints, w, rows)
		case Uint8, Bool:
			gather(d.Bytes[at*w:], s.Bytes, w, rows)
		case Uint64:
			gather(d.Words[at*w:], s.Words, w, rows)
		}
	}
}

// gather copies rows of w values.
func gather[T any](dst, src []T, w int, rows []int) {
	if w == 1 {
		for i, r := range rows {
			dst[i] = src[r]
		}
		return
	}
	for i, r := range rows {
		copy(dst[i*w:(i+1)*w], src[r*w:(r+1)*w])
	}
}

// CopyRange makes the rows from at on equal to the rows from..to-1 of src.
func (b *Batch) CopyRange(at int, src *Batch, from, to int) {
	b.mustLike(src)
	for i := range b.Columns {
		d, s := &b.Columns[i], &src.Columns[i]
		w := d.Width()
		copy(d.Floats[min(at*w, len(d.Floats)):], s.Floats[min(from*w, len(s.Floats)):min(to*w, len(s.Floats))])
		copy(d.Ints[min(at*w, len(d.Ints)):], s.Ints[min(from*w, len(s.Ints)):min(to*w, len(s.Ints))])
		copy(d.Bytes[min(at*w, len(d.Bytes)):], s.Bytes[min(from*w, len(s.Bytes)):min(to*w, len(s.Bytes))])
		copy(d.Words[min(at*w, len(d.Words)):], s.Words[min(from*w, len(s.Words)):min(to*w, len(s.Words))])
	}
}

// AppendBatch adds all rows of src, which must have the same columns.
func (b *Batch) AppendBatch(src *Batch) { b.AppendRange(src, 0, src.N) }

// AppendRange adds the rows from..to-1 of src.
func (b *Batch) AppendRange(src *Batch, from, to int) {
	b.mustLike(src)
	at := b.N
	b.Resize(at + to - from)
	b.CopyRange(at, src, from, to)
}

// Check reports whether the batch has these columns, in this order, and whether each has N rows: a
// batch that came from another process must pass before it is used.
func (b *Batch) Check(columns ...Column) error {
	if b.N < 0 || len(b.Columns) != len(columns) {
		return fmt.Errorf("batch of %d rows of %d columns, want %d columns", b.N, len(b.Columns), len(columns))
	}
	var faults []error
	for i := range b.Columns {
		c := &b.Columns[i]
		if !c.same(&columns[i]) {
			faults = append(faults, fmt.Errorf("batch with the column %.100q of %v %v, want %v", c.Name, c.Kind, cut(c.Shape), columns[i]))
			continue
		}
		if err := c.check(b.N); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// CheckLike is Check with the columns of another batch, which may be this one.
func (b *Batch) CheckLike(other *Batch) error {
	if err := other.like(b); err != nil {
		return err
	}
	for i := range b.Columns {
		if err := b.Columns[i].check(b.N); err != nil {
			return err
		}
	}
	return nil
}

// check reports a block whose length does not belong to n rows.
func (c *Block) check(n int) error {
	lengths := [4]int{len(c.Floats), len(c.Ints), len(c.Bytes), len(c.Words)}
	want := [4]int{}
	size := n
	for _, d := range c.Shape { // no size made of this overflows
		if d < 0 || d > 0 && size > maxValues/d {
			return fmt.Errorf("column %.100q: %d rows of shape %v", c.Name, n, cut(c.Shape))
		}
		size *= d
	}
	if n < 0 || size > maxValues {
		return fmt.Errorf("column %.100q: %d rows of shape %v", c.Name, n, cut(c.Shape))
	}
	switch c.Kind {
	case Float32:
		want[0] = size
	case Int32:
		want[1] = size
	case Uint8, Bool:
		want[2] = size
	case Uint64:
		want[3] = size
	}
	if lengths != want {
		return fmt.Errorf("column %.100q of %d rows has %d values, want %d", c.Name, n, lengths[0]+lengths[1]+lengths[2]+lengths[3], size)
	}
	return nil
}

// maxValues bounds a column, so that sizes made of it do not overflow.
const maxValues = 1 << 40

// CheckFinite returns a *nn.NonFiniteError for the first Float32 column with a NaN or an infinity.
func (b *Batch) CheckFinite() error {
	for i := range b.Columns {
		c := &b.Columns[i]
		t := nn.Tensor{Name: c.Name, Data: c.Floats}
		if err := t.CheckFinite(); err != nil {
			return err
		}
	}
	return nil
}

// Schema returns a copy of the batch's columns without their content.
func (b *Batch) Schema() []Column {
	out := make([]Column, len(b.Columns))
	for i := range b.Columns {
		out[i] = b.Columns[i].Column
		out[i].Shape = slices.Clone(out[i].Shape)
	}
	return out
}

// cut returns the beginning of a shape that came from outside.
func cut(shape []int) []int { return shape[:min(len(shape), 8)] }
