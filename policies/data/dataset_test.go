package data

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// labelled returns a batch of all kinds of columns, whose row i has the reward from+i.
func labelled(from, n int) *policies.Batch {
	b := new(policies.Batch)
	b.Init(append(policies.TransitionColumns(3, 2), policies.Column{Name: "token", Kind: policies.Int32, Shape: []int{2}},
		policies.Column{Name: "pixels", Kind: policies.Uint8, Shape: []int{2, 2}})...)
	b.Resize(n)
	for i := range n {
		for k := range b.Columns {
			c := &b.Columns[k]
			w := c.Width()
			for j := i * w; j < (i+1)*w; j++ {
				switch {
				case c.Floats != nil:
					c.Floats[j] = float32(from + i)
				case c.Ints != nil:
					c.Ints[j] = int32(from+i) - 5
				case c.Bytes != nil:
					c.Bytes[j] = uint8(from+i) & 1
				default:
					c.Words[j] = uint64(from+i) << 40
				}
			}
		}
	}
	return b
}

var walkInfo = DatasetInfo{Env: "Walk", Obs: "Box([-1], [1])", Action: "Discrete(2)", Policy: "scripted", Seed: 1 << 63, Episodes: 2,
	Return: 1.5}

// written writes a dataset file of labelled rows.
func written(t *testing.T, dir, name string, from, n int, edit ...func(*DatasetInfo, *policies.Batch)) string {
	t.Helper()
	path, info, b := filepath.Join(dir, name), walkInfo, labelled(from, n)
	for _, f := range edit {
		f(&info, b)
	}
	if err := WriteDataset(path, info, b); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameRows reports whether two batches have equal columns, bit for bit.
func sameRows(a, b *policies.Batch) bool {
	return a.CheckLike(b) == nil && a.N == b.N && slices.EqualFunc(a.Columns, b.Columns, func(x, y policies.Block) bool {
		bits := func(p, q float32) bool { return math.Float32bits(p) == math.Float32bits(q) }
		return slices.EqualFunc(x.Floats, y.Floats, bits) && slices.Equal(x.Ints, y.Ints) && slices.Equal(x.Bytes, y.Bytes) &&
			slices.Equal(x.Words, y.Words)
	})
}

func TestDatasetFileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := written(t, dir, "walk.safetensors", 10, 7)
	info, rows, err := ReadDataset(path)
	if err != nil || info != walkInfo || !sameRows(rows, labelled(10, 7)) {
		t.Errorf("%+v, %v: %v", info, rows, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, want the file alone: %v", entries, err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written(t, dir, "walk.safetensors", 10, 7)
	if second, err := os.ReadFile(path); err != nil || !bytes.Equal(first, second) {
		t.Errorf("equal rows give other bytes: %v", err)
	}
}

// TestDatasetFileOfAnyDamageIsRefused: every cut, and every changed byte, or nothing of the content has changed.
func TestDatasetFileOfAnyDamageIsRefused(t *testing.T) {
	text, err := encodeDataset(walkInfo, labelled(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if _, _, _, err := decodeDataset(text[:n]); !errors.Is(err, ErrDataset) {
			t.Errorf("cut to %d of %d bytes: %v", n, len(text), err)
		}
	}
	if _, _, _, err := decodeDataset(append(slices.Clone(text), 0)); !errors.Is(err, ErrDataset) {
		t.Errorf("a byte more: %v", err)
	}
	for i := range text {
		for _, flip := range []byte{1, 4, 0x80, 0xff} {
			damaged := slices.Clone(text)
			damaged[i] ^= flip
			info, rows, _, err := decodeDataset(damaged)
			if err == nil && info == walkInfo && sameRows(rows, labelled(0, 2)) {
				continue // such as white space of the header
			}
			if !errors.Is(err, ErrDataset) {
				t.Errorf("byte %d ^ %#x: %v", i, flip, err)
			}
		}
	}
}

// unchecked returns a dataset file with any rows.
func unchecked(t *testing.T, path string, edit func(a *nn.Archive)) string {
	t.Helper()
	var a nn.Archive
	a.SetText(infoKey, "{}")
	err := PutRows(&a, datasetName, labelled(0, 3), 3)
	edit(&a)
	sum, err2 := checksum(&a)
	a.SetText(sumKey, sum)
	text, err3 := a.AppendBinary(nil)
	if err := errors.Join(err, err2, err3, os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDatasetRefuses(t *testing.T) {
	dir := t.TempDir()
	good := written(t, dir, "good.safetensors", 0, 4)
	cut := filepath.Join(dir, "cut.safetensors")
	text, err := os.ReadFile(good)
	if err := errors.Join(err, os.WriteFile(cut, text[:len(text)-3], 0o600)); err != nil {
		t.Fatal(err)
	}
	empty, foreign := filepath.Join(dir, "empty"), filepath.Join(dir, "foreign")
	var a nn.Archive
	a.Put("x", nn.State{})
	text, err = a.AppendBinary(nil)
	if err := errors.Join(err, os.Mkdir(empty, 0o700), os.WriteFile(foreign, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	poisoned := unchecked(t, filepath.Join(dir, "nan.safetensors"), func(a *nn.Archive) { a.Tensors[0].Data[5] = float32(math.NaN()) })
	elsewhere := written(t, dir, "elsewhere.safetensors", 0, 4, func(i *DatasetInfo, _ *policies.Batch) { i.Env = "Run" })
	narrow := written(t, dir, "narrow.safetensors", 0, 4, func(_ *DatasetInfo, b *policies.Batch) { b.Columns = b.Columns[1:] })
	for _, c := range []struct {
		name string
		cfg  DatasetConfig
		want string
	}{
		{"no paths", DatasetConfig{Batch: -1},
			"dataset config: Paths is empty, want at least one file or folder\ndataset config: Batch is -1, want at least 1"},
		{"no file", DatasetConfig{Paths: []string{filepath.Join(dir, "none")}}, "dataset: open " + filepath.Join(dir, "none")},
		{"empty folder", DatasetConfig{Paths: []string{empty}}, "dataset: the folder " + empty + " has no file *.safetensors"},
		{"named twice", DatasetConfig{Paths: []string{good, good}}, "dataset: " + good + " is named twice"},
		{"cut", DatasetConfig{Paths: []string{cut}}, "read dataset " + cut + ": not a readable dataset file: not a readable safetensors archive"},
		{"foreign", DatasetConfig{Paths: []string{foreign}}, "its metadata has no dataset/sha256"},
		{"not finite", DatasetConfig{Paths: []string{poisoned}},
			"read dataset " + poisoned + ": column obs, row 1: tensor obs is not finite: value 5 is NaN"},
		{"shape", DatasetConfig{Paths: []string{good}, Columns: policies.TransitionColumns(4, 2)},
			"dataset " + good + ": it has [obs float32 [3] "},
		{"shape wanted", DatasetConfig{Paths: []string{good}, Columns: policies.TransitionColumns(4, 2)}, "want the column obs float32 [4]"},
		{"kind", DatasetConfig{Paths: []string{good}, Columns: []policies.Column{{Name: policies.Reward, Kind: policies.Int32}}},
			"want the column reward int32"},
		{"missing", DatasetConfig{Paths: []string{good}, Columns: []policies.Column{{Name: policies.LogProb, Kind: policies.Float32}}},
			"want the column log_prob float32"},
		{"environments", DatasetConfig{Paths: []string{good, elsewhere}},
			"dataset " + elsewhere + `: it is of the environment "Run", the files before it of "Walk"`},
		{"columns of a later file", DatasetConfig{Paths: []string{good, narrow}}, "dataset " + narrow},
		{"memory", DatasetConfig{Paths: []string{good}, LimitBytes: 100}, "LimitBytes allows 100: name fewer files"},
	} {
		if _, err := OpenDataset(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	if _, err := OpenDataset(DatasetConfig{Paths: []string{good}, LimitBytes: 100}); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
	for _, b := range []*policies.Batch{labelled(0, 0), {N: 3}, {}} {
		if err := WriteDataset(filepath.Join(dir, "no"), walkInfo, b); err == nil {
			t.Errorf("%d rows of %d columns are written", b.N, len(b.Columns))
		}
	}
	b := labelled(0, 3)
	b.Floats(policies.NextObs)[7] = float32(math.Inf(-1))
	err = WriteDataset(filepath.Join(dir, "no"), walkInfo, b)
	if _, ok := errors.AsType[*nn.NonFiniteError](err); !ok || !strings.Contains(err.Error(), "column next_obs, row 2") {
		t.Error(err)
	}
	d, err := OpenDataset(DatasetConfig{Paths: []string{good}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Add(labelled(0, 1)); err == nil || !strings.HasPrefix(err.Error(), "add to dataset: ") {
		t.Error(err)
	}
}

// TestDatasetDrawsAllRowsOfAllFiles uniformly, with the wanted columns alone.
func TestDatasetDrawsAllRowsOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	one := written(t, dir, "b.safetensors", 0, 3)
	sub := filepath.Join(dir, "parts")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	written(t, sub, "part-000002.safetensors", 7, 1, func(i *DatasetInfo, _ *policies.Batch) { i.Episodes, i.Return = 0, 0 })
	written(t, sub, "part-000001.safetensors", 3, 4, func(i *DatasetInfo, _ *policies.Batch) { i.Episodes, i.Return = 1, 6 })
	if err := os.WriteFile(filepath.Join(sub, ".part-000003.safetensors.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reward := policies.Column{Name: policies.Reward, Kind: policies.Float32}
	d, err := OpenDataset(DatasetConfig{Paths: []string{one, sub}, Columns: []policies.Column{reward}, Batch: 800, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if d.Len() != 8 || d.Bytes() != 32 || d.Info().Episodes != 3 || d.Info().Return != 3 || d.Info().Env != "Walk" || !d.Offline() {
		t.Errorf("%d rows, %d bytes, %+v", d.Len(), d.Bytes(), d.Info())
	}
	var b policies.Batch
	var count [8]int
	for range 10 {
		if !d.Next(&b) || d.Next(&b) || b.Check(reward) != nil || b.N != 800 {
			t.Fatalf("a batch of %d rows of %v, and then none", b.N, b.Schema())
		}
		for _, r := range b.Floats(policies.Reward) {
			count[int(r)]++
		}
	}
	for row, n := range count { // 1,000 each; the deviation is 30
		if n < 850 || n > 1150 {
			t.Errorf("row %d was drawn %d times of 8,000", row, n)
		}
	}
}

// TestP4DatasetGoesOnToTheBit, and only with the same files.
func TestP4DatasetGoesOnToTheBit(t *testing.T) {
	dir := t.TempDir()
	one, two := written(t, dir, "1.safetensors", 0, 50), written(t, dir, "2.safetensors", 50, 9)
	open := func(paths ...string) *Dataset {
		d, err := OpenDataset(DatasetConfig{Paths: paths, Batch: 5, Seed: 8})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	draw := func(d *Dataset) string {
		var b policies.Batch
		if !d.Next(&b) {
			return "none"
		}
		return fmt.Sprint(b.Floats(policies.Reward))
	}
	for _, before := range []int{0, 2, 3} { // with a batch given, and without
		straight := open(one, two)
		for range before {
			draw(straight)
		}
		var a nn.Archive
		again := open(one, two)
		if err := errors.Join(straight.Save(&a), again.Restore(&a)); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if want, got := draw(straight), draw(again); got != want {
				t.Errorf("after %d: %s, want %s", before, got, want)
			}
		}
		if err := open(two, one).Restore(&a); err == nil || !strings.Contains(err.Error(), "saved with other files") {
			t.Errorf("other files: %v", err)
		}
	}
	if err := open(one).Restore(new(nn.Archive)); err == nil {
		t.Error("an empty archive passes")
	}
}

func TestDatasetNextAllocatesNothing(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDataset(DatasetConfig{Paths: []string{written(t, dir, "1.safetensors", 0, 50), written(t, dir, "2.safetensors", 50, 9)}})
	if err != nil {
		t.Fatal(err)
	}
	var b policies.Batch
	d.Next(&b)
	if n := testing.AllocsPerRun(50, func() { d.Next(&b) }); n != 0 {
		t.Errorf("Next allocates %v times", n)
	}
}

// FuzzDataset: what is read is written to the same content again, and what is written is read.
func FuzzDataset(f *testing.F) {
	for _, n := range []int{1, 5} {
		text, err := encodeDataset(walkInfo, labelled(0, n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint64(n))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		if info, rows, _, err := decodeDataset(text); err == nil {
			again, err := encodeDataset(info, rows)
			if err != nil {
				t.Fatalf("what was read is not written: %v", err)
			}
			if info2, rows2, _, err := decodeDataset(again); err != nil || info2 != info || !sameRows(rows, rows2) {
				t.Fatalf("%+v and %+v: %v", info, info2, err)
			}
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		b := labelled(rng.IntN(100), 1+rng.IntN(20))
		for i := range b.Columns {
			for k := range b.Columns[i].Floats {
				b.Columns[i].Floats[k] = math.Float32frombits(rng.Uint32() &^ (1 << 23)) // finite
			}
		}
		info := DatasetInfo{Env: string(text[:min(len(text), 9)]), Seed: seed, Episodes: int(seed % 7)}
		file, err := encodeDataset(info, b)
		if err != nil {
			t.Fatal(err)
		}
		if _, rows, _, err := decodeDataset(file); err != nil || !sameRows(rows, b) {
			t.Fatalf("%v", err)
		}
	})
}
