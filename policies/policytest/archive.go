package policytest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// resume: a policy that is saved and restored in the middle continues with the same bits, as does the
// one that was saved. The restored policies have another seed; the second one has learned before.
func (s *suite) resume() {
	const end = 8
	// Two places, because a policy may do something at every second update only.
	for _, c := range []struct {
		name            string
		stop, before    int
		throughFile     bool
		previousContent bool
	}{{"archive", 3, 0, false, false}, {"file, with other parts before it, into a policy that has learned", 4, 3, true, true}} {
		straight, first, second := s.New(1), s.New(1), s.New(2)
		_, err0 := s.rounds(straight, 0, c.stop)
		_, err1 := s.rounds(first, 0, c.stop)
		_, err2 := s.rounds(second, 0, c.before)
		if !s.must(err0) || !s.must(err1) || !s.must(err2) {
			return
		}
		var a nn.Archive
		if c.previousContent {
			a.Put("other", nn.State{Version: 99, Tensors: []nn.Tensor{{Name: "weight", Shape: []int{1}, Data: []float32{7}}}})
			a.SetText("other/text", "kept")
		}
		if err := guard(func() error { return first.Save(&a) }); !s.must(err) {
			return
		}
		from := &a
		if c.throughFile {
			file, err := a.AppendBinary(nil)
			if !s.must(err) {
				return
			}
			if from, err = parse(file); !s.must(err) {
				return
			}
		}
		if err := restore(second, from); err != nil {
			s.faultf("%s: Restore: %w", c.name, err)
			continue
		}
		if second.Version() != first.Version() {
			s.faultf("%s: version %d, want %d", c.name, second.Version(), first.Version())
		}
		want, err := s.rounds(straight, c.stop, end)
		if !s.must(err) {
			return
		}
		for what, p := range map[string]policies.Policy{"the policy that was saved": first, "the restored policy": second} {
			s.follows(c.name+": "+what, p, straight, want, c.stop, end)
		}
	}
}

// follows reports where p, in the rounds from..to-1, differs from straight, which has made them.
func (s *suite) follows(what string, p, straight policies.Policy, want []entry, from, to int) {
	got, err := s.rounds(p, from, to)
	if err != nil {
		s.faultf("%s: %w", what, err)
		return
	}
	if d := difference(want, got); d != "" {
		s.faultf("%s differs from one that went straight on: %s", what, d)
	}
	a, errA := snapshot(straight)
	b, errB := snapshot(p)
	if s.must(errA) && s.must(errB) {
		if d := changed(a, b); d != "" {
			s.faultf("%s saves something else than one that went straight on: %s", what, d)
		}
	}
}

// savedArchive: an archive shares no memory with the policy that wrote it, or with those that read it.
func (s *suite) savedArchive() {
	p, ok := s.learned(1, 2)
	if !ok {
		return
	}
	var a nn.Archive
	if err := guard(func() error { return p.Save(&a) }); !s.must(err) {
		return
	}
	before, err := a.AppendBinary(nil)
	if !s.must(err) {
		return
	}
	reader := s.New(2)
	if err := restore(reader, &a); !s.must(err) {
		return
	}
	for _, c := range []struct {
		what string
		p    policies.Policy
	}{{"saved", p}, {"restored", reader}} {
		if _, err := s.rounds(c.p, 2, 4); !s.must(err) {
			return
		}
		after, err := a.AppendBinary(nil)
		if !s.must(err) {
			return
		}
		if d := changed(before, after); d != "" {
			s.faultf("the archive changes when the %s policy learns: %s", c.what, d)
			return
		}
	}
}

// damagedArchive: Restore names the missing or damaged entry. An entry that is not needed may be
// missing: then the restored policy continues with the same bits.
func (s *suite) damagedArchive() {
	const stop, end = 3, 5
	p, ok := s.learned(1, stop)
	if !ok {
		return
	}
	file, err := snapshot(p)
	if !s.must(err) {
		return
	}
	whole, err := parse(file)
	if !s.must(err) {
		return
	}
	if len(whole.Tensors) == 0 {
		s.faultf("Save writes no tensor")
		return
	}
	want, err := s.rounds(p, stop, end)
	if !s.must(err) {
		return
	}
	try := func(what, part string, edit func(a *nn.Archive)) {
		a, err := parse(file)
		if !s.must(err) {
			return
		}
		edit(a)
		q := s.New(2)
		if err := restore(q, a); err == nil {
			got, err := s.rounds(q, stop, end)
			if err != nil || difference(want, got) != "" {
				s.faultf("Restore of an archive %s is no error, and the policy differs afterwards", what)
			}
		} else if s.refused("Restore of an archive "+what, err) && !strings.Contains(err.Error(), part) {
			s.faultf("Restore of an archive %s: error %q does not name %s", what, err, part)
		}
	}
	for i, t := range whole.Tensors {
		for _, d := range damages(t) {
			try(fmt.Sprintf("whose tensor %s %s", t.Name, d.what), partOf(t.Name), func(a *nn.Archive) {
				if d.edit == nil {
					a.Tensors = slices.Delete(a.Tensors, i, i+1)
				} else {
					d.edit(&a.Tensors[i])
				}
			})
		}
	}
	for name := range whole.Meta {
		try("without "+name, partOf(name), func(a *nn.Archive) { delete(a.Meta, name) })
		try("with other text as "+name, partOf(name), func(a *nn.Archive) { a.Meta[name] = "?" })
	}
	s.otherArchives(whole)
}

// otherArchives: an empty archive, and one of another algorithm, are refused by the name of a part.
func (s *suite) otherArchives(whole *nn.Archive) {
	other := nn.Archive{Meta: map[string]string{}}
	parts := map[string]bool{}
	for _, t := range whole.Tensors {
		parts[partOf(t.Name)] = true
		t.Name = "another." + t.Name
		other.Tensors = append(other.Tensors, t)
	}
	for name, text := range whole.Meta {
		parts[partOf(name)] = true
		other.Meta["another."+name] = text
	}
	for what, a := range map[string]*nn.Archive{"an empty archive": {}, "another algorithm's archive": &other} {
		err := restore(s.New(2), a)
		if !s.refused("Restore of "+what, err) {
			continue
		}
		named := false
		for part := range parts {
			named = named || strings.Contains(err.Error(), part)
		}
		if !named {
			s.faultf("Restore of %s: error %q names no part of the policy", what, err)
		}
	}
}

// partOf returns the part of a checkpoint that a name in an archive belongs to.
func partOf(name string) string {
	part, _, _ := strings.Cut(name, "/")
	return part
}

// damage is something that a tensor can suffer. A nil edit stands for a tensor that is missing.
type damage struct {
	what string
	edit func(t *nn.Tensor)
}

// damages returns those that fit a tensor.
func damages(t nn.Tensor) []damage {
	all := []damage{{"is missing", nil}}
	if t.Ints != nil || t.Bytes != nil || t.Words != nil || len(t.Data) == 0 {
		return all
	}
	value := func(v float64) func(*nn.Tensor) {
		return func(t *nn.Tensor) {
			t.Data = slices.Clone(t.Data)
			t.Data[len(t.Data)-1] = float32(v)
		}
	}
	return append(all,
		damage{"has a NaN", value(math.NaN())},
		damage{"has an infinity", value(math.Inf(-1))},
		damage{"has a value less", func(t *nn.Tensor) { t.Data, t.Shape = t.Data[:len(t.Data)-1], []int{len(t.Data) - 1} }},
		damage{"has a value more", func(t *nn.Tensor) {
			t.Data = append(slices.Clone(t.Data), 0)
			t.Shape = []int{len(t.Data)}
		}},
		damage{"is of int32", func(t *nn.Tensor) { t.Ints, t.Data = make([]int32, len(t.Data)), nil }},
	)
}

// weights: weights that are given make another policy act alike, and share no memory with either.
func (s *suite) weights() {
	p, ok := s.learned(1, 3)
	if !ok {
		return
	}
	w := p.Weights()
	if w.Version != p.Version() {
		s.faultf("Weights have version %d, want that of the policy, %d", w.Version, p.Version())
	}
	q := s.New(2)
	if err := load(q, w); err != nil {
		s.faultf("Load of weights of the same kind of policy: %w", err)
		return
	}
	if q.Version() != p.Version() {
		s.faultf("Load leaves version %d, want that of the weights, %d", q.Version(), p.Version())
	}
	want := tensors(p.Weights())
	if d := difference(want, tensors(q.Weights())); d != "" {
		s.faultf("Weights after Load are not those that were given: %s", d)
	}
	actions := func(p policies.Policy) []entry {
		a := newAct(p.Spec(), 8, numbers(0))
		a.Greedy = true
		s.must(act(p, a))
		return []entry{{"greedy action", floats(a.Action)}, {"state", floats(a.State)}}
	}
	if d := difference(actions(p), actions(q)); d != "" {
		s.faultf("two policies with the same weights act differently: %s", d)
	}
	for _, t := range w.Tensors {
		for i := range t.Data {
			t.Data[i]++
		}
	}
	for name, r := range map[string]policies.Policy{"that gave them": p, "that took them": q} {
		if d := difference(want, tensors(r.Weights())); d != "" {
			s.faultf("weights share memory with the policy %s: %s", name, d)
		}
	}
}

// tensors returns the tensors of weights, to compare.
func tensors(w nn.State) []entry {
	var out []entry
	for _, t := range w.Tensors {
		out = append(out, entry{t.Name, floats(t.Data)})
	}
	return out
}

// damagedWeights: weights that do not fit or are not finite change nothing.
func (s *suite) damagedWeights() {
	from, ok := s.learned(2, 3)
	if !ok {
		return
	}
	p, ok := s.learned(1, 1)
	if !ok {
		return
	}
	before, err := snapshot(p)
	if !s.must(err) {
		return
	}
	version := p.Version()
	try := func(what, name string, edit func(w *nn.State)) {
		w := from.Weights()
		w.Version = 77
		edit(&w)
		what = "Load of weights " + what
		err := load(p, w)
		if s.refused(what, err) && !strings.Contains(err.Error(), name) {
			s.faultf("%s: error %q does not name %s", what, err, name)
		}
		s.unchanged(what, p, before)
		if p.Version() != version {
			s.faultf("%s makes the version %d, want %d as before", what, p.Version(), version)
			version = p.Version()
		}
	}
	for i, t := range from.Weights().Tensors {
		for _, d := range damages(t) {
			try(fmt.Sprintf("whose tensor %s %s", t.Name, d.what), lastOf(t.Name), func(w *nn.State) {
				if d.edit == nil {
					w.Tensors = slices.Delete(w.Tensors, i, i+1)
				} else {
					d.edit(&w.Tensors[i])
				}
			})
		}
	}
	try("without tensors", "", func(w *nn.State) { w.Tensors = nil })
}

// lastOf returns the name of a tensor in its network.
func lastOf(name string) string { return name[strings.LastIndex(name, "/")+1:] }
