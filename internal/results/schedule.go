package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ditask/ditask/train"
)

// job is one run of a preset.
type job struct {
	preset   *train.Preset
	seed     uint64
	settings string
	done     *record
	err      error
}

// costs are the CPU seconds that runs of each preset have taken.
type costs map[string][]float64

func (c costs) add(preset string, seconds float64) { c[preset] = append(c[preset], seconds) }

// of returns the expected time of a run of a preset: as long as the longest before, or as the mean preset if there was none.
func (c costs) of(preset string) float64 {
	if known := c[preset]; len(known) > 0 {
		return slices.Max(known)
	}
	total := 0.0
	for _, known := range c {
		total += slices.Max(known) / float64(len(c))
	}
	return total
}

// jobs returns the runs of presets, those that have ended with their records.
func (s *store) jobs(presets []train.Preset) (all []*job, err error) {
	for i := range presets {
		for seed := uint64(1); seed <= s.seeds; seed++ {
			j := &job{preset: &presets[i], seed: seed}
			if j.settings, err = settingsOf(j.preset, seed); err != nil {
				return nil, err
			}
			if j.done, err = s.find(j.preset, seed, j.settings); err != nil {
				return nil, err
			}
			all = append(all, j)
		}
	}
	return all, nil
}

// order sorts jobs so that the longest come first, and no processor waits at the end. Jobs of unknown length come before
// all others.
func order(todo []*job, known costs) {
	slices.SortStableFunc(todo, func(a, b *job) int {
		x, y := len(known[a.preset.Name]) > 0, len(known[b.preset.Name]) > 0
		if x != y {
			return map[bool]int{true: 1, false: -1}[x]
		}
		return cmp.Compare(known.of(b.preset.Name), known.of(a.preset.Name))
	})
}

// trainAll makes the runs that are missing, and returns the records of all in the order of presets and seeds.
func (s *store) trainAll(ctx context.Context, presets []train.Preset, old records, stdout io.Writer) (records, error) {
	all, err := s.jobs(presets)
	if err != nil {
		return nil, err
	}
	known := costs{}
	for _, r := range old {
		known.add(r.Preset, r.CPUSeconds)
	}
	var todo []*job
	for _, j := range all {
		if j.done == nil {
			todo = append(todo, j)
		} else {
			known.add(j.preset.Name, j.done.CPUSeconds)
		}
	}
	order(todo, known)
	fmt.Fprintf(stdout, "%d runs: %d have ended before, %d are to be made, %d at a time\n", len(all), len(all)-len(todo), len(todo), s.atOnce)
	s.each(ctx, todo, &progress{began: time.Now(), atOnce: s.atOnce, out: stdout, todo: todo, known: known})
	var out records
	var faults []error
	missing := 0
	for _, j := range all {
		switch {
		case j.done != nil:
			out = append(out, *j.done)
		case j.err != nil && ctx.Err() == nil:
			faults = append(faults, fmt.Errorf("%s, seed %d: %w", j.preset.Name, j.seed, j.err))
			missing++
		default:
			missing++
		}
	}
	if err := ctx.Err(); err != nil {
		faults = append(faults, fmt.Errorf("interrupted: %d of %d runs are kept in %s: the same command continues with the others",
			len(out), len(all), s.runs))
	} else if missing > 0 {
		faults = append(faults, fmt.Errorf("%d of %d runs have failed, and nothing was written but those in %s", missing, len(all), s.runs))
	}
	return out, errors.Join(faults...)
}

// each makes runs, as many at a time as wanted, and returns when all have ended.
func (s *store) each(ctx context.Context, todo []*job, p *progress) {
	next := make(chan *job)
	var workers sync.WaitGroup
	for range min(s.atOnce, len(todo)) {
		workers.Go(func() {
			for j := range next {
				r, err := s.train(ctx, j.preset, j.seed, j.settings)
				if j.err = err; err == nil {
					j.done = &r
				}
				if ctx.Err() == nil {
					p.ended(j, time.Now())
				}
			}
		})
	}
	for _, j := range todo {
		select {
		case next <- j:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
}

// progress tells how far the runs are.
type progress struct {
	began  time.Time
	atOnce int
	out    io.Writer
	todo   []*job

	mu    sync.Mutex
	known costs
	ends  map[*job]bool // the runs that have ended
	spent float64       // CPU seconds that they have taken
}

// ended prints a line about a run.
func (p *progress) ended(j *job, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends == nil {
		p.ends = map[*job]bool{}
	}
	p.ends[j] = true
	line := fmt.Sprintf("%d of %d: %s, seed %d: ", len(p.ends), len(p.todo), j.preset.Name, j.seed)
	if j.err != nil {
		line += "failed"
	} else {
		p.spent += j.done.CPUSeconds
		p.known.add(j.preset.Name, j.done.CPUSeconds)
		line += fmt.Sprintf("%s, %.1f CPU s", number(j.done.Return), j.done.CPUSeconds)
	}
	if len(p.ends) < len(p.todo) {
		line += ", about " + p.remaining(now) + " left"
	}
	fmt.Fprintln(p.out, line)
}

// remaining returns the time that the other runs take if the processors give them as much time as those before.
func (p *progress) remaining(now time.Time) string {
	pace := 1 / float64(p.atOnce) // wall seconds for a CPU second
	if p.spent > 0 {
		pace = max(pace, now.Sub(p.began).Seconds()/p.spent)
	}
	seconds := 0.0
	for _, j := range p.todo {
		if !p.ends[j] {
			seconds += p.known.of(j.preset.Name) * pace
		}
	}
	if seconds < 60 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}
