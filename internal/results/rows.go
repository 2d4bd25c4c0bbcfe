package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ditask/ditask/train"
)

// row is the line of a preset on the page.
type row struct {
	Preset, Settings string
	Published        string
	Ours             string // mean ± deviation
	Each             string // return of each seed
	Threshold        string
	EachSteps        string // env steps of each seed until the threshold
	Median           string // of these
	CPU              string // seconds of each seed
	Verdict          string
}

// none stands for a number that there is not.
const none = "–"

// rowOf makes the row of a preset from the records of its seeds.
func rowOf(p *train.Preset, all records) row {
	r := row{Preset: p.Name, Settings: p.Settings, Published: cmp.Or(p.Reported(), none),
		Threshold: strconv.FormatFloat(p.Threshold, 'f', -1, 64)}
	mean, deviation := statistics(all)
	r.Ours = number(mean) + " ± " + number(deviation)
	var each, steps, took []string
	for _, x := range all {
		each = append(each, number(x.Return))
		took = append(took, fmt.Sprintf("%.1f", x.CPUSeconds))
		if x.EnvSteps > 0 {
			steps = append(steps, thousands(x.EnvSteps))
		} else {
			steps = append(steps, none)
		}
	}
	r.Each, r.EachSteps, r.CPU = strings.Join(each, ", "), strings.Join(steps, ", "), strings.Join(took, ", ")
	r.Median, r.Verdict = median(all), verdict(p, all)
	return r
}

// statistics returns the mean of the returns, and their standard deviation over all seeds.
func statistics(all records) (mean, deviation float64) {
	n := float64(len(all))
	for _, r := range all {
		mean += r.Return / n
	}
	for _, r := range all {
		deviation += (r.Return - mean) * (r.Return - mean) / n
	}
	return mean, math.Sqrt(deviation)
}

// median returns the median of the env steps until the threshold, where a seed that has not reached it counts as more than any other.
func median(all records) string {
	var steps []int
	for _, r := range all {
		steps = append(steps, r.EnvSteps)
		if r.EnvSteps == 0 {
			steps[len(steps)-1] = math.MaxInt
		}
	}
	slices.Sort(steps)
	low, high := steps[(len(steps)-1)/2], steps[len(steps)/2]
	if high == math.MaxInt {
		return none
	}
	return thousands(low + (high-low)/2)
}

// verdict compares the results with the published ones. A mean over several published runs is met within their
// deviation. One published run has none: it is met by a mean that is as high.
func verdict(p *train.Preset, all records) string {
	var parts []string
	mean, deviation := statistics(all)
	switch q := p.Published; {
	case q.Runs > 1:
		parts = append(parts, besideSeveral(p, mean))
	case q.Runs == 1:
		parts = append(parts, besideOne(q.Mean, mean, deviation, all))
	}
	if g := p.Gate; g.EnvSteps > 0 {
		n := 0
		for _, r := range all {
			if p.Threshold >= g.Mean && r.EnvSteps > 0 && r.EnvSteps <= g.EnvSteps || p.Greedy && r.Return >= g.Mean && stepsOf(p) <= g.EnvSteps {
				n++
			}
		}
		parts = append(parts, fmt.Sprintf("gate passed by %d of %d seeds", n, len(all)))
	}
	if parts == nil {
		return fmt.Sprintf("nothing published; %s the threshold", all.reach(p.Threshold))
	}
	return strings.Join(parts, "; ")
}

// besideSeveral compares a mean with that of several published runs.
func besideSeveral(p *train.Preset, mean float64) string {
	difference := mean - p.Published.Mean
	switch within := math.Abs(difference) <= p.Published.Deviation; {
	case within && p.Unsolved && mean < p.Threshold:
		return "known negative reproduced: within the published deviation, and not solved"
	case within:
		return "met: within the published deviation"
	case difference > 0:
		return "above by " + number(difference)
	}
	return "**below** by " + number(-difference)
}

// besideOne compares a mean with one published run.
func besideOne(published, mean, deviation float64, all records) string {
	difference := mean - published
	switch {
	case difference == 0:
		return "met"
	case difference > 0:
		return "above by " + number(difference)
	case -difference <= deviation:
		return "below by " + number(-difference) + ", within our deviation; " + all.reach(published) + " it"
	}
	return "**below** by " + number(-difference) + "; " + all.reach(published) + " it"
}

// reach reports how many runs reach a return.
func (all records) reach(want float64) string {
	n := 0
	for _, r := range all {
		if r.Return >= want {
			n++
		}
	}
	return fmt.Sprintf("%d of %d seeds reach", n, len(all))
}

// stepsOf returns the length of a run of a preset.
func stepsOf(p *train.Preset) int {
	c, err := config(p)
	if err != nil {
		return math.MaxInt // it was refused before it was trained with
	}
	return c.Steps()
}

// number has three digits, or one behind the point.
func number(v float64) string {
	if math.Abs(v) < 10 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// thousands returns a number with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// printRows prints the rows of presets as one table.
func printRows(w io.Writer, presets []train.Preset, all records) error {
	if _, err := io.WriteString(w, tableHead); err != nil {
		return err
	}
	for i := range presets {
		r := rowOf(&presets[i], all.of(presets[i].Name))
		if _, err := io.WriteString(w, r.String()); err != nil {
			return err
		}
	}
	return nil
}

const tableHead = "| preset | settings | published | mean ± deviation | each seed | " +
	"threshold: env steps of each seed until 100 episodes reached it (median) | CPU seconds of a run | verdict |\n" +
	"|---|---|---|---|---|---|---|---|\n"

// String returns the line of a table.
func (r row) String() string {
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s: %s (%s) | %s | %s |\n",
		r.Preset, strings.NewReplacer("|", `\|`, "\n",
			" ").Replace(r.Settings), r.Published, r.Ours, r.Each, r.Threshold, r.EachSteps, r.Median, r.CPU, r.Verdict)
}
