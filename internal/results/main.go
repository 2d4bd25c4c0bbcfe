// Results trains with the presets of package train, and writes docs/results.md: the results beside those that
// others have published for the same settings.
//
//	go run ./internal/results                            every preset that is not long, with seeds 1 to 5, as many at once as processors
//	go run ./internal/results ppo/CartPole dqn           those whose names begin so; the other rows of the page stay
//	go run ./internal/results -seeds 2 -at-once 1 ppo    fewer seeds than the page has: the rows are only printed
//	go run ./internal/results -check                     train again, and compare with the page
//	go run ./internal/results -render                    write the page again, after a change of its text
//	go run ./internal/results -nodes 4 -seeds 3          the table of docs/results-processes.md: with a learner, an
//	                                                     evaluator and two collectors, until the threshold
//
// make reproduce builds and runs it.
//
// # Files
//
// A run is its own process, whose folder is .reproduce/ALGORITHM/ENVIRONMENT/SOURCE/seed-N once it has ended. A
// program that is killed or interrupted continues with the runs that are missing when it is started again. Runs of another
// build of the program, or with other settings, are made again; -reuse keeps those of another build. docs/results/results.json
// has the result of each run, one line a run; docs/results.md is made of it, the presets, and results.md.tmpl
// beside this file, which has the text. docs/results has a picture for each environment.
//
// # Concurrency and errors
//
// One program at a time writes to a folder of runs: it is locked. A run that fails does not stop the others; its output
// is part of the error at the end, and no page is written. Nothing but the processor time differs between runs with the
// same seed on processors of one kind.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/rundir"
	"github.com/ditask/ditask/train"
)

func main() {
	if os.Getenv(control.VarNodeID) != "" { // a process of a job
		parallel.Main(play)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil && interrupted:
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	seeds, one           uint64
	atOnce, nodes        int
	presets, runs        string
	docs, out, date      string
	check, render, reuse bool
	prefixes             []string
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("results", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Uint64Var(&o.seeds, "seeds", 5, "runs of each preset")
	f.IntVar(&o.atOnce, "at-once", runtime.NumCPU(), "runs at a time")
	f.IntVar(&o.nodes, "nodes", 1, "processes of a run; more than 1: print the table of docs/results-processes.md")
	f.StringVar(&o.presets, "presets", "", "file with other presets than those of package train")
	f.StringVar(&o.runs, "runs", ".reproduce", "folder of the runs")
	f.StringVar(&o.docs, "docs", "docs", "folder of results.md")
	f.StringVar(&o.date, "date", "", "date of the runs for the page, such as 2026-04-30; empty: that of the commit")
	f.BoolVar(&o.check, "check", false, "train again, compare with the page, and fail if they differ")
	f.BoolVar(&o.render, "render", false, "write the page again without training")
	f.BoolVar(&o.reuse, "reuse", false, "keep finished runs of other builds of this program")
	f.Uint64Var(&o.one, "one", 0, "train once with this seed, and print the result alone")
	f.StringVar(&o.out, "out", "", "folder of the run of -one")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.prefixes = f.Args()
	var faults []error
	want := func(ok bool, text string, value any) {
		if !ok {
			faults = append(faults, fmt.Errorf(text, value))
		}
	}
	want(o.seeds >= 1 && o.seeds <= 1000, "-seeds %d: want 1 to 1000", o.seeds)
	want(o.atOnce >= 1, "-at-once %d: want at least 1", o.atOnce)
	want(o.nodes >= 1, "-nodes %d: want at least 1", o.nodes)
	want(!o.check || !o.render, "-check and -render%s: want one of them", "")
	if o.date != "" {
		_, err := time.Parse(time.DateOnly, o.date)
		want(err == nil, "-date %q: want a date such as 2026-04-30", o.date)
	}
	return o, errors.Join(faults...)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	all := train.Presets()
	if o.presets != "" {
		if all, err = readPresets(o.presets); err != nil {
			return err
		}
	}
	if o.one > 0 {
		return one(ctx, all, o, stdin, stdout)
	}
	chosen, err := choose(all, o.prefixes)
	switch {
	case err != nil:
		return err
	case o.nodes > 1:
		return withProcesses(ctx, chosen, o.seeds, o.nodes, stdout)
	case o.render:
		return render(o.docs, all)
	}
	return reproduce(ctx, all, chosen, o, stdout)
}

func readPresets(path string) ([]train.Preset, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	all, err := train.ReadPresets(path, f)
	return all, errors.Join(err, f.Close())
}

// choose returns the presets whose names begin with one of the prefixes, or all that are not long if there are no prefixes.
func choose(all []train.Preset, prefixes []string) ([]train.Preset, error) {
	if len(prefixes) == 0 {
		return slices.DeleteFunc(slices.Clone(all), func(p train.Preset) bool { return p.Long }), nil
	}
	wanted := func(p train.Preset, prefix string) bool { return strings.HasPrefix(p.Name, prefix) }
	for _, prefix := range prefixes {
		if !slices.ContainsFunc(all, func(p train.Preset) bool { return wanted(p, prefix) }) {
			_, err := train.PresetOf(all, prefix)
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p train.Preset) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return wanted(p, prefix) })
	}), nil
}

// reproduce makes the runs that are missing, and then writes the page or compares with it.
func reproduce(ctx context.Context, all, chosen []train.Preset, o options, stdout io.Writer) error {
	old, err := readRecords(recordsPath(o.docs))
	if err != nil {
		return err
	}
	if name := foreign(old, all); o.presets != "" && name != "" {
		return fmt.Errorf("%s has runs of %s, which is not in %s: choose another folder with -docs", recordsPath(o.docs), name, o.presets)
	}
	if o.check {
		if err := covered(old, chosen, o.seeds); err != nil {
			return err
		}
		o.runs = filepath.Join(o.runs, "check")
	}
	lock, err := rundir.Take(o.runs, rundir.Self("results"))
	if err != nil && !errors.Is(err, rundir.ErrNoLock) {
		return err
	}
	defer lock.Release()
	s, err := openStore(o)
	if err != nil {
		return err
	}
	fresh, err := s.trainAll(ctx, chosen, old, stdout)
	if err != nil {
		return err
	}
	switch {
	case o.check:
		return errors.Join(compare(old, fresh, stdout), s.clear())
	case fewer(old, fresh, chosen):
		fmt.Fprintf(stdout, "\n%s has more seeds of these presets, and stays as it is. The rows of %d:\n\n", pagePath(o.docs), o.seeds)
		return printRows(stdout, chosen, fresh)
	}
	merged := merge(all, old, fresh, chosen)
	if err := writeRecords(recordsPath(o.docs), merged); err != nil {
		return err
	}
	if err := s.drawAll(merged, all, chosen, stdout); err != nil {
		return err
	}
	if err := render(o.docs, all); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s is written\n", pagePath(o.docs))
	return err
}

// dateOf returns the date of the runs: that of a flag, or else that of the commit that the program was built from.
func dateOf(flag, commit string) string {
	day, _, _ := strings.Cut(commit, "T")
	return cmp.Or(flag, day)
}
