// Package runfolder reads the files in the folder of a training run.
//
//	table, err := runfolder.ReadTable("runs/ppo/20060102-150405-5f2c/progress.csv")
//	steps, returns := table.Column("time/total_timesteps"), table.Column("rollout/ep_rew_mean") // NaN where a cell is empty
//	config, err := runfolder.ReadConfig("runs/ppo/20060102-150405-5f2c/config.yaml")
//	algo := config["algo"]
//
// A run may still be writing: a row that is cut at the end of a table is left out. Any other fault is an error that names the
// file, the line and the column. Files larger than MaxTableBytes and MaxConfigBytes are refused. An error quotes a
// file only in part, and is safe to print. The functions are safe for concurrent use.
package runfolder

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/ditask/ditask/internal/printable"
)

// The names of the files.
const (
	Progress    = "progress.csv"
	Evaluations = "evaluations.csv"
	Config      = "config.yaml"
	Outcome     = "outcome.json"
)

// The columns by which rows are in order, and by which runs are compared.
const (
	Steps  = "time/total_timesteps"
	Time   = "time/time_elapsed"
	Return = "rollout/ep_rew_mean"
	Eval   = "eval/mean_reward"
)

// The bounds of the files.
const (
	MaxTableBytes  = 256 << 20
	MaxConfigBytes = 1 << 20
)

// Table is a table of numbers.
type Table struct {
	Columns []string
	values  [][]float64 // of each column; NaN: the cell is empty
}

// Rows returns the number of rows.
func (t *Table) Rows() int {
	if len(t.values) == 0 {
		return 0
	}
	return len(t.values[0])
}

// Column returns the values of a column, NaN where a cell is empty, or nil if there is no such column. The
// caller must not change them.
func (t *Table) Column(name string) []float64 {
	if i := slices.Index(t.Columns, name); i >= 0 {
		return t.values[i]
	}
	return nil
}

// Last returns the last value of a column that is not empty.
func (t *Table) Last(name string) (v float64, ok bool) {
	for _, v := range slices.Backward(t.Column(name)) {
		if !math.IsNaN(v) {
			return v, true
		}
	}
	return 0, false
}

// ReadTable reads a file of comma-separated values with a header, such as progress.csv.
func ReadTable(path string) (*Table, error) {
	text, err := read(path, MaxTableBytes)
	if err != nil {
		return nil, err
	}
	t, err := ParseTable(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return t, nil
}

// ParseTable is ReadTable on a text. An error begins with the line: "3: column 2 (train/loss): ...".
func ParseTable(text []byte) (*Table, error) {
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the row that is being written
	r := csv.NewReader(bytes.NewReader(text))
	r.ReuseRecord, r.FieldsPerRecord = true, -1
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("1: the table has no header")
	}
	if err != nil {
		return nil, csvError(err)
	}
	t := &Table{Columns: slices.Clone(header), values: make([][]float64, len(header))}
	for i, name := range t.Columns {
		if slices.Contains(t.Columns[:i], name) {
			return nil, fmt.Errorf("1: column %d: the name %s occurs twice", i+1, quoted(name))
		}
	}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, csvError(err)
		}
		if err := t.add(r, row); err != nil {
			return nil, err
		}
	}
}

// add adds a row.
func (t *Table) add(r *csv.Reader, row []string) error {
	if len(row) != len(t.Columns) {
		line, _ := r.FieldPos(0)
		return fmt.Errorf("%d: column %d: the row has %d columns, the header %d", line, min(len(row), len(t.Columns))+1, len(row), len(t.Columns))
	}
	for i, cell := range row {
		v := math.NaN()
		if cell != "" {
			var err error
			if v, err = strconv.ParseFloat(cell, 64); err != nil {
				line, _ := r.FieldPos(i)
				return fmt.Errorf("%d: column %d (%s): %s is no number", line, i+1, printable.Cut(t.Columns[i], 80), quoted(cell))
			}
		}
		t.values[i] = append(t.values[i], v)
	}
	return nil
}

// csvError returns an error of package csv, line first.
func csvError(err error) error {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%d: character %d: %w", e.Line, e.Column, e.Err)
	}
	return fmt.Errorf("1: %w", err)
}

// ReadConfig reads a file of YAML as one map of texts. A key below another one is joined to it by a dot, and a list is one text.
func ReadConfig(path string) (map[string]string, error) {
	text, err := read(path, MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseConfig is ReadConfig on a text.
func ParseConfig(text []byte) (map[string]string, error) {
	var all yaml.MapSlice
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, errors.New(printable.Cut(strings.ReplaceAll(err.Error(), "\n", ""), 200))
	}
	out := map[string]string{}
	if err := flatten(out, "", all); err != nil {
		return nil, err
	}
	return out, nil
}

// flatten puts the values of a map into out.
func flatten(out map[string]string, prefix string, all yaml.MapSlice) error {
	for _, item := range all {
		key := prefix + fmt.Sprint(item.Key)
		if _, twice := out[key]; twice {
			return fmt.Errorf("key %s occurs twice", quoted(key))
		}
		switch v := item.Value.(type) {
		case yaml.MapSlice:
			if err := flatten(out, key+".", v); err != nil {
				return err
			}
		case nil:
			out[key] = ""
		default:
			out[key] = fmt.Sprint(v)
		}
	}
	return nil
}

// read reads a file of at most that many bytes.
func read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return text, err
}

// quoted quotes a part of a cell.
func quoted(s string) string { return strconv.Quote(printable.Cut(s, 60)) }
