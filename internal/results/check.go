package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ditask/ditask/train"
)

// seed returns the record of a run, or nil.
func (all records) seed(preset string, seed uint64) *record {
	i := slices.IndexFunc(all, func(r record) bool { return r.Preset == preset && r.Seed == seed })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// covered reports which runs cannot be compared, as the page does not have them or has them with other settings.
func covered(old records, chosen []train.Preset, seeds uint64) error {
	var faults []error
	for i := range chosen {
		p := &chosen[i]
		for seed := uint64(1); seed <= seeds; seed++ {
			settings, err := settingsOf(p, seed)
			r := old.seed(p.Name, seed)
			switch {
			case err != nil:
				faults = append(faults, err)
			case r == nil:
				faults = append(faults, fmt.Errorf("%s, seed %d: the page does not have it: make it with make reproduce PRESET=%s", p.Name, seed,
					p.Name))
			case r.Settings != settings:
				faults = append(faults, fmt.Errorf("%s, seed %d: the settings are not those of the page: make reproduce PRESET=%s takes them over",
					p.Name, seed, p.Name))
			}
		}
	}
	return errors.Join(faults...)
}

// compare fails with a list of the runs whose results are not those of the page, as the page shows them. Processor time
// does not count.
func compare(old, fresh records, stdout io.Writer) error {
	var differences []string
	other := ""
	for _, r := range fresh {
		was := old.seed(r.Preset, r.Seed)
		if number(was.Return) == number(r.Return) && was.EnvSteps == r.EnvSteps {
			continue
		}
		differences = append(differences, fmt.Sprintf("%s, seed %d: %s, on the page %s", r.Preset, r.Seed, outcome(&r), outcome(was)))
		if was.Processor != r.Processor {
			other = fmt.Sprintf("\nthe page's are of %s, and this is %s: processors of another kind may round differently", was.Processor,
				r.Processor)
		}
	}
	if differences != nil {
		return fmt.Errorf("%d of %d runs differ from the page:\n%s%s", len(differences), len(fresh), strings.Join(differences, "\n"), other)
	}
	_, err := fmt.Fprintf(stdout, "all %d runs equal the page\n", len(fresh))
	return err
}

// outcome describes the result of a run.
func outcome(r *record) string {
	if r.EnvSteps == 0 {
		return number(r.Return) + " without the threshold"
	}
	return number(r.Return) + " with the threshold after " + thousands(r.EnvSteps) + " env steps"
}
