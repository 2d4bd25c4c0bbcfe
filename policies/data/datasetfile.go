package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// DatasetInfo describes the rows of a dataset file.
type DatasetInfo struct {
	Env      string  `json:"env"`      // name of the environment
	Obs      string  `json:"obs"`      // space of its observations, in Gymnasium's notation
	Action   string  `json:"action"`   // space of its actions
	Policy   string  `json:"policy"`   // that chose the actions
	Seed     uint64  `json:"seed"`     // of the run that collected the rows
	Episodes int     `json:"episodes"` // that ended in the rows
	Return   float64 `json:"return"`   // mean undiscounted return of those episodes; 0 without any
}

// ErrDataset is wrapped by every error of a file that is no whole dataset file.
var ErrDataset = errors.New("not a readable dataset file")

// Names and metadata keys in a dataset file.
const (
	datasetName = "dataset" // before the names of the columns
	infoKey     = datasetName + "/info"
	sumKey      = datasetName + "/sha256" // of the file without this word
)

// DatasetExt is how the names of dataset files end.
const DatasetExt = ".safetensors"

// WriteDataset writes rows to a dataset file, and replaces an existing one. It writes a temporary file next to
// path, syncs and renames it, so that a file is always complete; a process that is killed in between leaves
// a file whose name begins with a dot. The folder must exist. A value that is not finite is an error that
// names column and row. A batch without rows is an error.
//
// The file is an archive in the safetensors format: a tensor "dataset/" and the column's name for each
// column, and as metadata the info, the types of the columns and a SHA-256 checksum. Python's
// safetensors reads it. All of it is in memory while it is written.
func WriteDataset(path string, info DatasetInfo, rows *policies.Batch) error {
	text, err := encodeDataset(info, rows)
	if err == nil {
		err = replaceFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("write dataset %s: %w", path, err)
	}
	return nil
}

// encodeDataset returns the content of a dataset file.
func encodeDataset(info DatasetInfo, rows *policies.Batch) ([]byte, error) {
	if rows.N == 0 || len(rows.Columns) == 0 {
		return nil, fmt.Errorf("%d rows of %d columns, want at least one of each", rows.N, len(rows.Columns))
	}
	if err := errors.Join(rows.CheckLike(rows), finiteRows(rows)); err != nil {
		return nil, err
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	var a nn.Archive
	a.SetText(infoKey, string(text))
	if err := PutRows(&a, datasetName, rows, rows.N); err != nil {
		return nil, err
	}
	sum, err := checksum(&a)
	if err != nil {
		return nil, err
	}
	a.SetText(sumKey, sum)
	return a.AppendBinary(nil)
}

// checksum returns the checksum of the archive without a checksum.
func checksum(a *nn.Archive) (string, error) {
	text, err := a.AppendBinary(nil)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// finiteRows reports the first value that is not finite, with its column and row.
func finiteRows(b *policies.Batch) error {
	for i := range b.Columns {
		c := &b.Columns[i]
		if k := nn.FindNonFinite(c.Floats); k >= 0 {
			return fmt.Errorf("column %s, row %d: %w", c.Name, k/c.Width(), &nn.NonFiniteError{Tensor: c.Name, Index: k, Value: c.Floats[k]})
		}
	}
	return nil
}

// replaceFile replaces the file at path.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadDataset reads a dataset file. A file that is cut, has a changed byte, or is of another format is
// an error that wraps [ErrDataset]; a value that is not finite is one that names column and row. While
// it is read, a file takes about three times its size in memory; the result takes as much as the file.
func ReadDataset(path string) (DatasetInfo, *policies.Batch, error) {
	info, rows, _, err := readDataset(path)
	return info, rows, err
}

// readDataset also returns the file's checksum.
func readDataset(path string) (info DatasetInfo, rows *policies.Batch, sum string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return info, nil, "", fmt.Errorf("read dataset: %w", err) // which names the file
	}
	if info, rows, sum, err = decodeDataset(text); err != nil {
		return info, nil, "", fmt.Errorf("read dataset %s: %w", path, err)
	}
	return info, rows, sum, nil
}

func decodeDataset(text []byte) (info DatasetInfo, rows *policies.Batch, sum string, err error) {
	fail := func(format string, args ...any) (DatasetInfo, *policies.Batch, string, error) {
		return DatasetInfo{}, nil, "", fmt.Errorf("%w: "+format, append([]any{ErrDataset}, args...)...)
	}
	var a nn.Archive
	if err := a.UnmarshalBinary(text); err != nil {
		return fail("%w", err)
	}
	want, ok := a.Meta[sumKey]
	if !ok {
		return fail("its metadata has no %s, such as that of a file from another program", sumKey)
	}
	delete(a.Meta, sumKey)
	sum, err = checksum(&a)
	if err != nil {
		return fail("%w", err)
	}
	if sum != want {
		return fail("its content has changed since it was written: the checksum is %s, want %.64q", sum, want)
	}
	if err := json.Unmarshal([]byte(a.Meta[infoKey]), &info); err != nil {
		return fail("%s: %w", infoKey, err)
	}
	if rows, err = RowsOf(&a, datasetName); err != nil {
		return fail("%w", err)
	}
	if rows.N == 0 || len(rows.Columns) == 0 {
		return fail("%d rows of %d columns, want at least one of each", rows.N, len(rows.Columns))
	}
	return info, rows, sum, finiteRows(rows)
}

// DatasetFiles returns the dataset files that paths name: files themselves, and of folders all files that
// end in [DatasetExt], in the order of their names. A folder without any is an error.
func DatasetFiles(paths ...string) ([]string, error) {
	var files []string
	for _, p := range paths {
		entries, err := os.ReadDir(p)
		if err != nil {
			if info, e := os.Stat(p); e == nil && !info.IsDir() {
				files = append(files, p)
				continue
			}
			return nil, fmt.Errorf("dataset: %w", err)
		}
		before := len(files)
		for _, e := range entries { // by name
			if name := e.Name(); !e.IsDir() && strings.HasSuffix(name, DatasetExt) && !strings.HasPrefix(name, ".") {
				files = append(files, filepath.Join(p, name))
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("dataset: the folder %s has no file *%s", p, DatasetExt)
		}
	}
	if twice := firstTwice(files); twice != "" {
		return nil, fmt.Errorf("dataset: %s is named twice", twice)
	}
	return files, nil
}

// firstTwice returns an element that occurs twice, or "".
func firstTwice(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return sorted[i]
		}
	}
	return ""
}
