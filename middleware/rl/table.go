package rl

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ditask/ditask/internal/safefile"
)

// stepsColumn is the column by which the rows are ordered.
const stepsColumn = "time/total_timesteps"

// table is a file of comma-separated values to which columns can be added. A nil one writes nothing.
type table struct {
	path    string
	columns []string
	file    *os.File // at its end
	csv     *csv.Writer
}

// openTable creates a file or, if upTo is not negative, continues an existing one and keeps its rows
// of at most that many steps.
func openTable(path string, columns []string, upTo int) (*table, error) {
	t := &table{path: path, columns: slices.Clone(columns)}
	var rows [][]string
	if upTo >= 0 {
		old, err := readTable(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if len(old) > 0 {
			if !slices.Contains(old[0], stepsColumn) {
				return nil, fmt.Errorf("%s is not the log of a run: it has no column %s", path, stepsColumn)
			}
			rows = t.adopt(old, upTo)
		}
	}
	return t, t.rewrite(rows)
}

// readTable reads a whole table, including its header.
func readTable(path string) ([][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // a killed run may have cut the last row
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	all, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

// adopt takes over the columns of a table, and returns its complete rows of at most that many
// steps.
func (t *table) adopt(old [][]string, upTo int) [][]string {
	header := old[0]
	for _, c := range t.columns {
		if !slices.Contains(header, c) {
			header = append(header, c)
		}
	}
	t.columns = header
	at := slices.Index(header, stepsColumn)
	return slices.DeleteFunc(old[1:], func(row []string) bool {
		if len(row) != len(old[0]) {
			return true
		}
		steps, err := strconv.ParseFloat(row[at], 64)
		return err != nil || steps > float64(upTo)
	})
}

// rewrite writes the whole file; rows may have fewer columns than the table has now.
func (t *table) rewrite(rows [][]string) error {
	if t.file != nil {
		if err := t.file.Close(); err != nil {
			return err
		}
		t.file = nil
	}
	f, err := replace(t.path, func(w io.Writer) error {
		out := csv.NewWriter(w)
		_ = out.Write(t.columns) // Error returns the error
		for _, row := range rows {
			_ = out.Write(append(row, make([]string, len(t.columns)-len(row))...))
		}
		out.Flush()
		return out.Error()
	})
	if err != nil {
		return err
	}
	t.file, t.csv = f, csv.NewWriter(f)
	return nil
}

// replace writes a new file and renames it to path. It returns the file, open at its end.
func replace(path string, write func(io.Writer) error) (*os.File, error) {
	if err := safefile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(write(w), w.Flush(), f.Chmod(0o644), os.Rename(f.Name(), path)); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// write appends a row, and columns that the table does not have yet.
func (t *table) write(columns []string, row map[string]float64) error {
	if t == nil {
		return nil
	}
	had := len(t.columns)
	for _, c := range columns {
		if !slices.Contains(t.columns, c) {
			t.columns = append(t.columns, c)
		}
	}
	if len(t.columns) > had {
		all, err := readTable(t.path)
		if err == nil && len(all) > 0 {
			err = t.rewrite(all[1:])
		}
		if err != nil {
			return err
		}
	}
	record := make([]string, len(t.columns))
	for i, c := range t.columns {
		if v, ok := row[c]; ok {
			record[i] = number(v)
		}
	}
	_ = t.csv.Write(record) // Error returns the error
	t.csv.Flush()
	return t.csv.Error()
}

// number formats a number as encoding/json does: without an exponent if that is short, so that counts are read as
// integers.
func number(v float64) string {
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	return strconv.FormatFloat(v, format, -1, 64)
}

func (t *table) close() error {
	if t == nil || t.file == nil {
		return nil
	}
	return t.file.Close()
}

// lines is a file of JSON objects, one per line. A nil one writes nothing.
type lines struct{ file *os.File }

// openLines is openTable for lines.
func openLines(path string, upTo int) (*lines, error) {
	var keep []byte
	if upTo >= 0 {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for dec := json.NewDecoder(bytes.NewReader(b)); ; {
			var row map[string]float64
			if dec.Decode(&row) != nil || row[stepsColumn] > float64(upTo) {
				break // the end, or a line that a killed run has cut
			}
			text, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			keep = append(append(keep, text...), '\n')
		}
	}
	f, err := replace(path, func(w io.Writer) error { _, err := w.Write(keep); return err })
	return &lines{f}, err
}

func (l *lines) write(row map[string]float64) error {
	if l == nil {
		return nil
	}
	return json.NewEncoder(l.file).Encode(row)
}

func (l *lines) close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}
