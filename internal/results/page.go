package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/ditask/ditask/train"
)

// pageText is the template of the page.
//
//go:embed results.md.tmpl
var pageText string

func pagePath(docs string) string { return filepath.Join(docs, "results.md") }

// picture returns the file with the curves of an environment.
func picture(docs, env string) string { return filepath.Join(docs, "results", env+".svg") }

// page is the data of the template.
type page struct {
	Builds       []string // the builds of the runs, with the number of runs
	Environments []environment
	Missing      []string // presets without runs
	Changed      []string // presets whose settings are others than those of the runs
}

type environment struct {
	Name    string
	Picture bool
	Head    string
	Rows    []row
}

// render writes the page from results.json and the presets.
func render(docs string, presets []train.Preset) error {
	all, err := readRecords(recordsPath(docs))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no runs: make some first, with make reproduce", recordsPath(docs))
	}
	text, err := renderPage(docs, presets, all)
	if err != nil {
		return err
	}
	return replace(pagePath(docs), text)
}

func renderPage(docs string, presets []train.Preset, all records) ([]byte, error) {
	p := page{Builds: builds(all)}
	for i := range presets {
		preset := &presets[i]
		runs := all.of(preset.Name)
		if len(runs) == 0 {
			p.Missing = append(p.Missing, preset.Name)
			continue
		}
		if same, err := sameSettings(preset, runs); err != nil {
			return nil, err
		} else if !same {
			p.Changed = append(p.Changed, preset.Name)
		}
		j := slices.IndexFunc(p.Environments, func(e environment) bool { return e.Name == preset.Env() })
		if j < 0 {
			_, err := os.Stat(picture(docs, preset.Env()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			j, p.Environments = len(p.Environments), append(p.Environments, environment{Name: preset.Env(), Picture: err == nil, Head: tableHead})
		}
		p.Environments[j].Rows = append(p.Environments[j].Rows, rowOf(preset, runs))
	}
	t, err := template.New("results.md.tmpl").Parse(pageText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, p)
	return b.Bytes(), err
}

// builds returns the builds of runs, in the order of the runs. Those of all but the most runs name their presets.
func builds(all records) (texts []string) {
	count, presets := map[build]int{}, map[build][]string{}
	var order []build
	most := 0
	for _, r := range all {
		if count[r.build]++; count[r.build] == 1 {
			order = append(order, r.build)
		}
		if name := "`" + r.Preset + "`"; !slices.Contains(presets[r.build], name) {
			presets[r.build] = append(presets[r.build], name)
		}
		most = max(most, count[r.build])
	}
	for _, b := range order {
		text := fmt.Sprintf("%s: %d runs", b, count[b])
		if count[b] < most {
			text += " of " + strings.Join(presets[b], ", ")
		}
		texts = append(texts, text)
	}
	return texts
}

// sameSettings reports whether runs were made with the settings that a preset has now.
func sameSettings(p *train.Preset, runs records) (bool, error) {
	for _, r := range runs {
		now, err := settingsOf(p, r.Seed)
		if err != nil || now != r.Settings {
			return false, err
		}
	}
	return true, nil
}

// merge replaces the records of the chosen presets, and drops those of presets that are gone.
func merge(presets []train.Preset, old, fresh records, chosen []train.Preset) (all records) {
	for _, p := range presets {
		if slices.ContainsFunc(chosen, func(c train.Preset) bool { return c.Name == p.Name }) {
			all = append(all, fresh.of(p.Name)...)
		} else {
			all = append(all, old.of(p.Name)...)
		}
	}
	return all
}

// fewer reports whether a preset has more seeds in old than in fresh.
func fewer(old, fresh records, chosen []train.Preset) bool {
	return slices.ContainsFunc(chosen, func(p train.Preset) bool { return len(old.of(p.Name)) > len(fresh.of(p.Name)) })
}

// foreign reports the first preset of records that is not in a list.
func foreign(all records, presets []train.Preset) string {
	for _, r := range all {
		if !slices.ContainsFunc(presets, func(p train.Preset) bool { return p.Name == r.Preset }) {
			return r.Preset
		}
	}
	return ""
}
