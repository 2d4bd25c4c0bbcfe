package data

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// numbered returns transitions first..first+n-1, each recognisable in every field.
func numbered(first, n int) *policies.Batch {
	var b policies.Batch
	b.Init(policies.TransitionColumns(2, 1)...)
	for i := first; i < first+n; i++ {
		v := float32(i)
		b.Append(policies.Transition{
			Obs: []float32{v, -v}, NextObs: []float32{v + 1, -v - 1}, Action: []float32{float32(i % 2)}, Reward: v,
			Terminated: i%3 == 0, Truncated: i%5 == 0, Steps: i%7 + 1, Version: uint64(i) << 30,
		})
	}
	return &b
}

func TestSampleGivesWholeTransitionsOfTheNewest(t *testing.T) {
	b := NewUniform(UniformConfig{Capacity: 10, Seed: 1})
	for first := 0; first < 24; first += 6 {
		if err := b.Add(numbered(first, 6)); err != nil {
			t.Fatal(err)
		}
	}
	if b.Len() != 10 || b.Capacity() != 10 {
		t.Errorf("%d of %d", b.Len(), b.Capacity())
	}
	counts := map[int]int{}
	var got policies.Batch
	for range 1000 {
		if err := b.Sample(&got, 10); err != nil {
			t.Fatal(err)
		}
		for i := range got.Len() {
			k := int(got.Floats("reward")[i])
			want := numbered(k, 1).At(0)
			if fmt.Sprint(got.At(i)) != fmt.Sprint(want) {
				t.Fatalf("sampled %+v, want %+v", got.At(i), want)
			}
			counts[k]++
		}
	}
	for k := 14; k < 24; k++ {
		if c := counts[k]; c < 850 || c > 1150 {
			t.Errorf("transition %d was drawn %d times of 10000, want about 1000", k, c)
		}
	}
	if len(counts) != 10 {
		t.Errorf("%d different transitions were drawn, want the newest 10", len(counts))
	}
}

func TestSampleOfTooFewIsAnError(t *testing.T) {
	b := NewUniform(UniformConfig{Capacity: 10})
	var got policies.Batch
	for _, n := range []int{0, 3} {
		if n > 0 {
			_ = b.Add(numbered(0, n))
		}
		if err := b.Sample(&got, 4); !errors.Is(err, ErrTooFew) || !strings.HasSuffix(err.Error(), fmt.Sprintf(": %d of 4 asked for", n)) {
			t.Errorf("with %d: %v", n, err)
		}
	}
	if err := b.Add(&policies.Batch{N: 1, Columns: []policies.Block{{Column: policies.Column{Name: "reward",
		Kind: policies.Float32}}}}); err == nil {
		t.Error("an inconsistent batch passes")
	}
	var other policies.Batch
	other.Init(policies.TransitionColumns(3, 1)...)
	other.Resize(1)
	if err := b.Add(&other); err == nil {
		t.Error("a batch of another dimension passes")
	}
}

func TestP6PriceIsKnownAndLimited(t *testing.T) {
	b := NewUniform(UniformConfig{Capacity: 1000})
	if b.Bytes() != 0 {
		t.Errorf("%d bytes before use", b.Bytes())
	}
	if err := b.Reserve(policies.TransitionColumns(4, 1)...); err != nil {
		t.Fatal(err)
	}
	var want uint64 = 1000 * (4*(4+4+1+1) + 3 + 8)
	held := 0
	for i := range b.rows.Columns {
		c := &b.rows.Columns[i]
		held += 4*cap(c.Floats) + 4*cap(c.Ints) + cap(c.Bytes) + 8*cap(c.Words)
	}
	if b.Bytes() != want || held != int(want) {
		t.Errorf("price %d, held %d, want %d", b.Bytes(), held, want)
	}
	if err := b.Reserve(policies.TransitionColumns(5, 1)...); err == nil {
		t.Error("reserving other dimensions passes")
	}
	small := NewUniform(UniformConfig{Capacity: 1000, LimitBytes: want - 1})
	var none policies.Batch
	none.Init(policies.TransitionColumns(4, 1)...)
	err := small.Add(&none)
	const text = "replay buffer beyond the memory limit: 1000 rows take 51000 bytes, LimitBytes allows 50999: lower the capacity"
	if !errors.Is(err, ErrMemory) || err.Error() != text {
		t.Errorf("beyond the limit: %v", err)
	}
	huge := NewUniform(UniformConfig{Capacity: 1 << 40})
	if err := huge.Reserve(policies.TransitionColumns(1000, 1)...); !errors.Is(err, ErrMemory) {
		t.Errorf("beyond the machine: %v", err)
	}
}

func TestP6LimitIsTheLeastOfGroupAndMachine(t *testing.T) {
	files := func(kv ...string) fstest.MapFS {
		m := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:     4096 kB\nMemFree:  1 kB\n")}}
		for pair := range slices.Chunk(kv, 2) {
			m[pair[0]] = &fstest.MapFile{Data: []byte(pair[1])}
		}
		return m
	}
	for _, c := range []struct {
		name string
		root fstest.MapFS
		want uint64
		from string
	}{
		{"nothing", fstest.MapFS{}, math.MaxUint64, "nothing"},
		{"machine", files(), 4 << 20, "the machine"},
		{"v2 in a container", files("sys/fs/cgroup/memory.max", "1000000\n"), 1000000, "the control group (sys/fs/cgroup/memory.max)"},
		{"v2 unlimited", files("sys/fs/cgroup/memory.max", "max\n"), 4 << 20, "the machine"},
		{"v2 parent", files("proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "max\n", "sys/fs/cgroup/a/memory.max", "5000\n"),
			5000, "the control group (sys/fs/cgroup/a/memory.max)"},
		{"v1", files("proc/self/cgroup", "7:memory:/x\n3:cpu:/y\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "777\n"),
			777, "the control group (sys/fs/cgroup/memory/x/memory.limit_in_bytes)"},
		{"other units", fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 1 MB\nMemTotal: 2\nSwapTotal: 3 kB\nMemTotal: 4 kB\n")}}, 4 << 10,
			"the machine"},
		{"no number", fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: x kB\n")}}, math.MaxUint64, "nothing"},
		{"a number that is too large", fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 18014398509481984 kB\n")}}, math.MaxUint64,
			"nothing"},
		{"garbage", files("proc/self/cgroup", "what\n", "sys/fs/cgroup/memory.max", "-3"), 4 << 20, "the machine"},
	} {
		if got, from := memoryLimit(c.root); got != c.want || from != c.from {
			t.Errorf("%s: %d by %s, want %d by %s", c.name, got, from, c.want, c.from)
		}
	}
}

func TestP6MemoryStaysFlat(t *testing.T) {
	b := NewUniform(UniformConfig{Capacity: 100})
	src := numbered(0, 10)
	var dst policies.Batch
	_ = b.Add(src)
	_ = b.Sample(&dst, 10)
	if n := testing.AllocsPerRun(1000, func() {
		_ = b.Add(src)
		_ = b.Sample(&dst, 10)
	}); n != 0 {
		t.Errorf("add and sample allocate %v times", n)
	}
	for range 100_000 {
		_ = b.Add(src)
	}
	if held := cap(b.rows.Floats("reward")); held != 100 {
		t.Errorf("room for %d after a million inserts", held)
	}
}

func TestP4RestoredBufferSamplesTheSame(t *testing.T) {
	for _, added := range []int{0, 7, 25} {
		straight := NewUniform(UniformConfig{Capacity: 10, Seed: 5})
		if added > 0 {
			_ = straight.Add(numbered(0, added))
		}
		var x, y policies.Batch
		_ = straight.Sample(&x, 3)
		var a, read nn.Archive
		if err := straight.Save(&a); err != nil {
			t.Fatal(err)
		}
		file, err := a.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := read.UnmarshalBinary(file); err != nil {
			t.Fatal(err)
		}
		resumed := NewUniform(UniformConfig{Capacity: 10, Seed: 99})
		if err := resumed.Restore(&read); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			_ = straight.Add(numbered(100+i, 1))
			_ = resumed.Add(numbered(100+i, 1))
			_, _ = straight.Sample(&x, min(5, straight.Len())), resumed.Sample(&y, min(5, resumed.Len()))
			if straight.Len() != resumed.Len() || !slices.Equal(x.Floats("reward"), y.Floats("reward")) || !slices.Equal(x.Words("version"),
				y.Words("version")) || !slices.Equal(x.Bytes("steps"), y.Bytes("steps")) {
				t.Fatalf("%d added: samples %v and %v", added, x.Floats("reward"), y.Floats("reward"))
			}
		}
		if err := NewUniform(UniformConfig{Capacity: 11}).Restore(&read); err == nil {
			t.Error("another capacity passes")
		}
	}
	if err := NewUniform(UniformConfig{}).Restore(&nn.Archive{}); err == nil {
		t.Error("an empty archive passes")
	}
}

func ExampleUniform() {
	buf := NewUniform(UniformConfig{Capacity: 20_000, Seed: 7})
	if err := buf.Reserve(policies.TransitionColumns(4, 1)...); err != nil {
		fmt.Println(err)
	}
	fmt.Println(buf.Bytes(), "bytes")
	var b policies.Batch
	fmt.Println(buf.Sample(&b, 64))
	// Output:
	// 1020000 bytes
	// too few rows in the replay buffer: 0 of 64 asked for
}

func BenchmarkSample64(b *testing.B) {
	buf := NewUniform(UniformConfig{Capacity: 20_000})
	_ = buf.Add(numbered(0, 20_000))
	var dst policies.Batch
	b.ReportAllocs()
	for b.Loop() {
		_ = buf.Sample(&dst, 64)
	}
}

// FuzzRestore reads a checkpoint that somebody else has written: it is refused, or
// the buffer works.
func FuzzRestore(f *testing.F) {
	for _, added := range []int{0, 3, 6} {
		b := NewUniform(UniformConfig{Capacity: 4})
		if added > 0 {
			_ = b.Add(numbered(0, added))
		}
		var a nn.Archive
		if err := b.Save(&a); err != nil {
			f.Fatal(err)
		}
		file, err := a.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var a nn.Archive
		if a.UnmarshalBinary(file) != nil {
			return
		}
		b := NewUniform(UniformConfig{Capacity: 4, LimitBytes: 1 << 20})
		if b.Restore(&a) != nil {
			return
		}
		var dst policies.Batch
		if b.Len() > 0 {
			if err := b.Sample(&dst, b.Len()); err != nil {
				t.Fatal(err)
			}
			_ = b.Add(&dst)
		}
		var again nn.Archive
		if err := b.Save(&again); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSamplesAreOfWhatWasAdded: the rest of a buffer that is not full is never drawn,
// and all that was added is.
func TestSamplesAreOfWhatWasAdded(t *testing.T) {
	b := NewUniform(UniformConfig{Capacity: 1000})
	if err := b.Add(numbered(1, 5)); err != nil {
		t.Fatal(err)
	}
	var got policies.Batch
	seen := map[float32]bool{}
	for range 100 {
		if err := b.Sample(&got, 5); err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Floats("reward") {
			seen[r] = true
		}
	}
	for i := range 5 {
		if !seen[float32(i+1)] {
			t.Errorf("transition %d was not drawn", i+1)
		}
	}
	if len(seen) != 5 {
		t.Errorf("drawn: %v", seen)
	}
	for _, n := range []int{0, -1} {
		if err := b.Sample(&got, n); !errors.Is(err, ErrTooFew) {
			t.Errorf("a sample of %d: %v", n, err)
		}
	}
}

func TestP6PriceAtTheLimitIsAllowed(t *testing.T) {
	price := Price(10, policies.TransitionColumns(2, 1)...)
	if err := NewUniform(UniformConfig{Capacity: 10, LimitBytes: price}).Reserve(policies.TransitionColumns(2, 1)...); err != nil {
		t.Error(err)
	}
	if err := NewUniform(UniformConfig{Capacity: 10, LimitBytes: price - 1}).Reserve(policies.TransitionColumns(2, 1)...); !errors.Is(err,
		ErrMemory) {
		t.Errorf("a byte less: %v", err)
	}
}

// TestRestoreForgetsWhatWasThere, and refuses what does not fit.
func TestRestoreForgetsWhatWasThere(t *testing.T) {
	src := NewUniform(UniformConfig{Capacity: 10})
	if err := src.Add(numbered(100, 3)); err != nil {
		t.Fatal(err)
	}
	var a nn.Archive
	if err := src.Save(&a); err != nil {
		t.Fatal(err)
	}
	b := NewUniform(UniformConfig{Capacity: 10})
	if err := errors.Join(b.Add(numbered(1, 8)), b.Restore(&a)); err != nil {
		t.Fatal(err)
	}
	var got policies.Batch
	if err := b.Sample(&got, 3); err != nil || b.Len() != 3 || slices.Min(got.Floats("reward")) < 100 {
		t.Errorf("%d transitions, sampled %v: %v", b.Len(), got.Floats("reward"), err)
	}
	for key, value := range map[string]uint64{"replay/next": 10, "replay/capacity": 11, "replay/version": 11} {
		was := a.Meta[key]
		a.Set(key, value)
		if err := NewUniform(UniformConfig{Capacity: 10}).Restore(&a); err == nil {
			t.Errorf("%s of %d passes", key, value)
		}
		a.Meta[key] = was
	}
}

// TestSeedChoosesTheSamples: another seed gives others.
func TestSeedChoosesTheSamples(t *testing.T) {
	sample := func(seed uint64) []float32 {
		b := NewUniform(UniformConfig{Capacity: 100, Seed: seed})
		var got policies.Batch
		if err := errors.Join(b.Add(numbered(1, 100)), b.Sample(&got, 50)); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(got.Floats("reward"))
	}
	if !slices.Equal(sample(1), sample(1)) || slices.Equal(sample(1), sample(2)) {
		t.Error("one seed gives two samples, or two seeds give one")
	}
}

func TestBufferWithoutACapacityHasTheDefault(t *testing.T) {
	if got := NewUniform(UniformConfig{}).Capacity(); got != 100_000 {
		t.Errorf("a capacity of %d", got)
	}
}

// A buffer has transitions of one kind, also those that it restores.
func TestRestoreRefusesOtherDimensions(t *testing.T) {
	var a nn.Archive
	from, to := NewUniform(UniformConfig{Capacity: 4}), NewUniform(UniformConfig{Capacity: 4})
	if err := errors.Join(from.Add(numbered(0, 2)), from.Save(&a), to.Reserve(policies.TransitionColumns(3, 1)...)); err != nil {
		t.Fatal(err)
	}
	if err := to.Restore(&a); err == nil || !strings.HasPrefix(err.Error(), "restore replay buffer: ") {
		t.Errorf("%v", err)
	}
}

// Rows that are not there have no length to make a buffer of.
func TestRestoreRefusesColumnsOfOtherLengths(t *testing.T) {
	var a nn.Archive
	from := NewUniform(UniformConfig{Capacity: 4})
	if err := errors.Join(from.Add(numbered(0, 2)), from.Save(&a)); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		whole := a.Tensors[i]
		a.Tensors[i].Shape, a.Tensors[i].Data = []int{0, 1 << 60}, nil
		if err := NewUniform(UniformConfig{Capacity: 4}).Restore(&a); err == nil {
			t.Errorf("tensor %s of no rows passes", whole.Name)
		}
		a.Tensors[i] = whole
	}
}

func TestBufferRefuses(t *testing.T) {
	func() {
		defer func() {
			if p := fmt.Sprint(recover()); p != "data: capacity of -1 rows" {
				t.Errorf("panic %q", p)
			}
		}()
		NewUniform(UniformConfig{Capacity: -1})
	}()
	b, bad := NewUniform(UniformConfig{Capacity: 10}), numbered(1, 3)
	reward := bad.Column("reward")
	reward.Floats = reward.Floats[:2]
	if err := b.Add(bad); err == nil || !strings.Contains(err.Error(), "add to replay buffer") || b.Len() != 0 {
		t.Errorf("a batch without its last reward: %v, %d kept", err, b.Len())
	}
}

// TestRestoreKeepsEveryField, and refuses an archive of which a column is of another
// size.
func TestRestoreKeepsEveryField(t *testing.T) {
	src := NewUniform(UniformConfig{Capacity: 10})
	want := numbered(1, 10)
	var a nn.Archive
	if err := errors.Join(src.Add(want), src.Save(&a)); err != nil {
		t.Fatal(err)
	}
	b := NewUniform(UniformConfig{Capacity: 10})
	if err := b.Restore(&a); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if got := fmt.Sprint(b.rows.At(i)); got != fmt.Sprint(want.At(i)) {
			t.Errorf("transition %d is %s, want %v", i, got, want.At(i))
		}
	}
	for i := range a.Tensors {
		whole := a.Tensors[i]
		part := whole
		part.Shape = append([]int{9}, whole.Shape[1:]...)
		part.Data = part.Data[:len(part.Data)/10*9]
		part.Bytes, part.Words = part.Bytes[:len(part.Bytes)/10*9], part.Words[:len(part.Words)/10*9]
		a.Tensors[i] = part
		if err := NewUniform(UniformConfig{Capacity: 10}).Restore(&a); err == nil {
			t.Errorf("%s of shape %v passes", whole.Name, part.Shape)
		}
		a.Tensors[i] = whole
	}
}

func TestP6LimitOfTheRuntimeCounts(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 40))
	root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 4294967296 kB\n")}}
	if limit, from := memoryLimit(root); limit != 1<<40 || from != "GOMEMLIMIT" {
		t.Errorf("%d by %s, want GOMEMLIMIT", limit, from)
	}
}
