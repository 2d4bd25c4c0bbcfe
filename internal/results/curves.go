package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ditask/ditask/internal/plot"
	"github.com/ditask/ditask/train"
)

// drawAll draws the curves of the environments of the chosen presets, with those of all presets of these environments.
func (s *store) drawAll(all records, presets, chosen []train.Preset, stdout io.Writer) error {
	var drawn []string
	for i := range chosen {
		env := chosen[i].Env()
		if slices.Contains(drawn, env) {
			continue
		}
		drawn = append(drawn, env)
		if err := s.draw(env, all, presets, stdout); err != nil {
			return fmt.Errorf("draw the curves of %s: %w", env, err)
		}
	}
	return nil
}

// draw draws the curves of one environment. If the folder of one of its runs is not there, the picture stays as it is.
func (s *store) draw(env string, all records, presets []train.Preset, stdout io.Writer) error {
	var runs []plot.Run
	cfg := plot.Config{Points: 101} // a log has 100 rows
	for i := range presets {
		p := &presets[i]
		if p.Env() != env {
			continue
		}
		for _, r := range all.of(p.Name) {
			if f, err := s.finished(p.Name, r.Seed); err != nil {
				return err
			} else if f == nil || f.record != r {
				_, err := fmt.Fprintf(stdout, "%s stays as it is: %s does not have the run of %s with seed %d\n", picture(s.docs, env), s.runs,
					p.Name, r.Seed)
				return err
			}
			run, err := plot.Read(s.dir(p.Name, r.Seed))
			if err != nil {
				return err
			}
			_, source, _ := strings.Cut(p.Name, env+"/")
			run.Algo, run.Env = p.Algorithm()+" "+source, env
			runs = append(runs, run)
		}
		if !slices.Contains(cfg.Threshold, p.Threshold) {
			cfg.Threshold = append(cfg.Threshold, p.Threshold)
		}
	}
	var b bytes.Buffer
	if err := plot.Curves(&b, plot.SVG, runs, cfg); err != nil {
		return err
	}
	return replace(picture(s.docs, env), b.Bytes())
}
