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
	known    bool
	cost     float64 // CPU seconds that it is expected to take
	done     *record
	err      error
}

// jobs are the runs of presets, those that have ended with their records. Those that take longest come first, so that
// no processor waits at the end; what a run takes is known from earlier runs of the preset, and runs of which nothing is known
// come before all.
func (s *store) jobs(presets []train.Preset, old records) (all []*job, err error) {
	costs := map[string][]float64{}
	for _, r := range old {
		costs[r.Preset] = append(costs[r.Preset], r.CPUSeconds)
	}
	for i := range presets {
		for seed := uint64(1); seed <= s.seeds; seed++ {
			j := &job{preset: &presets[i], seed: seed}
			if j.settings, err = settingsOf(j.preset, seed); err != nil {
				return nil, err
			}
			if j.done, err = s.find(j.preset, seed, j.settings); err != nil {
				return nil, err
			}
			if j.done != nil {
				costs[j.preset.Name] = append(costs[j.preset.Name], j.done.CPUSeconds)
			}
			all = append(all, j)
		}
	}
	longest := 0.0
	for _, j := range all {
		c := costs[j.preset.Name]
		if j.known = len(c) > 0; j.known {
			j.cost = slices.Max(c)
			longest = max(longest, j.cost)
		}
	}
	for _, j := range all {
		if !j.known {
			j.cost = max(longest, 1)
		}
	}
	return all, nil
}

// trainAll makes the runs that are missing, and returns the records of all in the order of presets and seeds.
func (s *store) trainAll(ctx context.Context, presets []train.Preset, old records, stdout io.Writer) (records, error) {
	all, err := s.jobs(presets, old)
	if err != nil {
		return nil, err
	}
	var todo []*job
	for _, j := range all {
		if j.done == nil {
			todo = append(todo, j)
		}
	}
	slices.SortStableFunc(todo, func(a, b *job) int {
		if a.known != b.known {
			return map[bool]int{true: 1, false: -1}[a.known]
		}
		return cmp.Compare(b.cost, a.cost)
	})
	fmt.Fprintf(stdout, "%d runs: %d have ended before, %d are to be made, %d at a time\n", len(all), len(all)-len(todo), len(todo), s.atOnce)
	s.each(ctx, todo, stdout)
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
		faults = append(faults, fmt.Errorf("interrupted: %d of %d runs are kept in %s: the same command goes on with the others",
			len(out), len(all), s.runs))
	} else if missing > 0 {
		faults = append(faults, fmt.Errorf("%d of %d runs have failed, and nothing was written but those in %s", missing, len(all), s.runs))
	}
	return out, errors.Join(faults...)
}

// each makes runs, as many at a time as wanted, and returns when all have ended.
func (s *store) each(ctx context.Context, todo []*job, stdout io.Writer) {
	p := progress{began: time.Now(), atOnce: s.atOnce, count: len(todo), out: stdout}
	for _, j := range todo {
		p.left += j.cost
	}
	next := make(chan *job)
	var workers sync.WaitGroup
	for range min(s.atOnce, len(todo)) {
		workers.Go(func() {
			for j := range next {
				r, err := s.train(ctx, j.preset, j.seed, j.settings)
				if j.err = err; err == nil {
					j.done = &r
				}
				p.ended(j, time.Now())
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
	began         time.Time
	atOnce, count int
	out           io.Writer

	mu          sync.Mutex
	n           int
	left, spent float64 // CPU seconds: expected of the other runs, and taken by those that have ended
}

// ended prints a line about a run.
func (p *progress) ended(j *job, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.left -= j.cost
	line := fmt.Sprintf("%d of %d: %s, seed %d: ", p.n, p.count, j.preset.Name, j.seed)
	if j.err != nil {
		line += "failed"
	} else {
		p.spent += j.done.CPUSeconds
		line += fmt.Sprintf("%s, %.1f CPU s", number(j.done.Return), j.done.CPUSeconds)
	}
	if p.n < p.count {
		line += ", about " + p.remaining(now).String() + " left"
	}
	fmt.Fprintln(p.out, line)
}

// remaining is the time that the other runs take if the processors give them as much time as those before.
func (p *progress) remaining(now time.Time) time.Duration {
	pace := 1 / float64(p.atOnce) // wall seconds for a CPU second
	if p.spent > 0 {
		pace = max(pace, now.Sub(p.began).Seconds()/p.spent)
	}
	left := time.Duration(max(p.left, 0) * pace * float64(time.Second))
	if left < time.Minute {
		return left.Round(time.Second)
	}
	return left.Round(time.Minute)
}
