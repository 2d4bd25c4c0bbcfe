package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// DatasetConfig describes a dataset that is learned from. Paths must be set.
type DatasetConfig struct {
	// Paths are dataset files, and folders of which all dataset files are taken: see [DatasetFiles].
	Paths []string
	// Columns are those that are wanted, such as Spec().Learns of a policy; others are not kept in
	// memory. Nil means all that there are.
	Columns []policies.Column
	Batch   int    // rows of an update; 0 means 256, as for CQL in d3rlpy and CORL
	Seed    uint64 // of the samples
	// LimitBytes is the largest size of all files together; 0 means the memory limit of the process.
	LimitBytes uint64
}

// EnsureDefaults returns the config with its zero values replaced.
func (c DatasetConfig) EnsureDefaults() DatasetConfig {
	if c.Batch == 0 {
		c.Batch = 256
	}
	return c
}

// Validate reports every fault of the config at once.
func (c DatasetConfig) Validate() error {
	var faults []error
	if len(c.Paths) == 0 {
		faults = append(faults, errors.New("dataset config: Paths is empty, want at least one file or folder"))
	}
	if c.Batch < 0 {
		faults = append(faults, fmt.Errorf("dataset config: Batch is %d, want at least 1", c.Batch))
	}
	return errors.Join(faults...)
}

// Dataset is the source of a policy that learns offline: from files that [WriteDataset] wrote, and
// without additions. Each row of a batch is as likely to be any row of the files.
//
//	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{"data"}, Columns: policy.Spec().Learns, Seed: 7})
//	for d.Next(&batch) {
//		metrics, err := policy.Learn(&batch)
//	}
//
// All rows are in memory: a dataset that is larger than the memory limit of the process is refused. A checkpoint
// holds the state of the samples, but no rows: the files must exist when a run is resumed. A
// dataset is not safe for concurrent use.
type Dataset struct {
	cfg    DatasetConfig
	parts  []policies.Batch // of each file, its columns that are wanted
	ends   []int            // of each part, the number of rows up to its end
	info   DatasetInfo
	sum    string // of all files
	source *rand.PCG
	rng    *rand.Rand
	given  bool // a batch, since Next has reported false
}

var _ Source = (*Dataset)(nil)

// OpenDataset reads the files of a dataset. A config with faults, a file that is no whole dataset file, or
// has a column missing or in another shape, files of different environments, and files that take more
// than the limit, which wraps [ErrMemory], are errors.
func OpenDataset(cfg DatasetConfig) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	files, err := DatasetFiles(cfg.Paths...)
	if err != nil {
		return nil, err
	}
	source := rand.NewPCG(cfg.Seed, 0x64617461) // the stream of samples
	d := &Dataset{cfg: cfg.EnsureDefaults(), source: source, rng: rand.New(source)}
	if err := d.afford(files); err != nil {
		return nil, err
	}
	sums := sha256.New()
	for _, file := range files {
		info, rows, sum, err := readDataset(file)
		if err == nil {
			if err = d.take(info, rows); err != nil {
				err = fmt.Errorf("dataset %s: %w", file, err)
			}
		}
		if err != nil {
			return nil, err
		}
		_, _ = sums.Write([]byte(sum)) // never fails
	}
	d.sum = hex.EncodeToString(sums.Sum(nil))
	return d, nil
}

// afford reports files that take more than the limit, before they are read.
func (d *Dataset) afford(files []string) error {
	limit, from := d.cfg.LimitBytes, "LimitBytes"
	if limit == 0 {
		limit, from = memoryLimit(os.DirFS("/"))
	}
	var price uint64
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("dataset: %w", err)
		}
		price += uint64(info.Size())
	}
	if price > limit {
		return fmt.Errorf("dataset: %w: %d files take %d bytes, %s allows %d: name fewer files", ErrMemory, len(files), price, from, limit)
	}
	return nil
}

// take adds the rows of a file.
func (d *Dataset) take(info DatasetInfo, rows *policies.Batch) error {
	wanted := d.cfg.Columns
	if len(d.parts) > 0 {
		wanted = d.parts[0].Schema()
		if info.Env != d.info.Env {
			return fmt.Errorf("it is of the environment %q, the files before it of %q", info.Env, d.info.Env)
		}
	} else if wanted == nil {
		wanted = rows.Schema()
	}
	part := policies.Batch{N: rows.N}
	for _, want := range wanted {
		c := rows.Column(want.Name)
		if c == nil || c.Kind != want.Kind || !slices.Equal(c.Shape, want.Shape) {
			return fmt.Errorf("it has %v, want the column %v", rows.Schema(), want)
		}
		part.Columns = append(part.Columns, *c)
	}
	d.ends = append(d.ends, d.Len()+part.N)
	d.parts = append(d.parts, part)
	d.join(info)
	return nil
}

// join adds the info of a file.
func (d *Dataset) join(info DatasetInfo) {
	if len(d.parts) == 1 {
		d.info = info
		return
	}
	sum := d.info.Return*float64(d.info.Episodes) + info.Return*float64(info.Episodes)
	if d.info.Episodes += info.Episodes; d.info.Episodes > 0 {
		d.info.Return = sum / float64(d.info.Episodes)
	}
}

// Info returns the info of the files: the number of episodes of all files, with their mean return, and the
// other fields of the first file.
func (d *Dataset) Info() DatasetInfo { return d.info }

// Len returns the number of rows.
func (d *Dataset) Len() int {
	if len(d.ends) == 0 {
		return 0
	}
	return d.ends[len(d.ends)-1]
}

// Bytes returns the memory that the rows take.
func (d *Dataset) Bytes() uint64 { return Price(d.Len(), d.parts[0].Schema()...) }

// Offline reports true: nothing needs to be added before there is something to learn.
func (d *Dataset) Offline() bool { return true }

// Add returns an error: the rows of a dataset are those of its files.
func (d *Dataset) Add(*policies.Batch) error {
	return errors.New("add to dataset: it learns from its files alone: leave out what collects")
}

// Next fills dst with a sample. It reports false after each of them, so that one update is one step
// of the caller.
func (d *Dataset) Next(dst *policies.Batch) bool {
	if d.given = !d.given; !d.given {
		return false
	}
	dst.InitLike(&d.parts[0])
	dst.Resize(d.cfg.Batch)
	for i := range d.cfg.Batch {
		row := d.rng.IntN(d.Len())
		k := sort.SearchInts(d.ends, row+1)
		if k > 0 {
			row -= d.ends[k-1]
		}
		dst.CopyRows(i, &d.parts[k], row)
	}
	return true
}

// Learned does nothing.
func (d *Dataset) Learned(*policies.Batch) error { return nil }

// Save writes the state of the samples, and by which files they were drawn.
func (d *Dataset) Save(a *nn.Archive) error {
	random, err := d.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save dataset: %w", err)
	}
	a.SetText("dataset/random", hex.EncodeToString(random))
	a.SetText("dataset/files", d.sum)
	a.SetText("dataset/given", strconv.FormatBool(d.given))
	return nil
}

// Restore restores d to the state at Save. Other files than then are an error.
func (d *Dataset) Restore(a *nn.Archive) error {
	random, err1 := hex.DecodeString(a.Meta["dataset/random"])
	given, err2 := strconv.ParseBool(a.Meta["dataset/given"])
	err := errors.Join(err1, err2)
	if err == nil && a.Meta["dataset/files"] != d.sum {
		err = errors.New("it was saved with other files, or with these in another order")
	}
	if err == nil {
		err = d.source.UnmarshalBinary(random)
	}
	if err != nil {
		return fmt.Errorf("restore dataset: %w", err)
	}
	d.given = given
	return nil
}
