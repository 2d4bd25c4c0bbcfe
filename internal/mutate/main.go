// Command mutate reports changes of a package's code that the package's tests do not notice.
//
//	go run ./internal/mutate [flags] FOLDER [flags of go test]
//	go run ./internal/mutate -n 40 -seed 2 ./task -short -run TestGroup
//
// It draws some mutations of the package in FOLDER at random: a condition that always or never holds, an
// operand, statement, call or loop that is left out, another operator, min for max, an error that is dropped.
// For each it runs the tests of this package only, by go test -overlay, so that no file is changed. A
// mutation is caught when the tests fail or run into their time limit. One that does not compile is
// replaced by another one.
//
// The command runs one mutation at a time, prints the survivors as it finds them and then the score, and
// ends with exit code 0 for any score. A survivor is a missing test, or a change that makes no difference.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// config has the settings of the command line.
type config struct {
	number   int
	seed     uint64
	limit    time.Duration // of one run of the tests; 0: from the time of the first run
	total    time.Duration
	files    *regexp.Regexp
	folder   string
	testArgs []string
}

func parse(args []string, out io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&c.number, "n", 30, "try `N` mutations that compile")
	flags.Uint64Var(&c.seed, "seed", 1, "draw the mutations by `SEED`")
	flags.DurationVar(&c.limit, "timeout", 0, "let one run of the tests take this long (default: 10s more than 4 times the first run)")
	flags.DurationVar(&c.total, "for", 10*time.Minute, "begin no mutation after this time")
	files := flags.String("files", "", "mutate only files whose names match `REGEXP`")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() == 0 {
		return c, errors.New("no package: name its folder, as in: mutate ./task")
	}
	c.folder, c.testArgs = flags.Arg(0), flags.Args()[1:]
	var err error
	if c.files, err = regexp.Compile(*files); err != nil {
		return c, fmt.Errorf("-files: %w", err)
	}
	return c, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := load(ctx, c)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	s := &session{config: c, dir: dir, out: out, end: time.Now().Add(c.total)}
	if err := s.baseline(ctx); err != nil {
		return err
	}
	return s.try(ctx, found)
}

// load returns all mutations of a package, in an order that the seed sets.
func load(ctx context.Context, c config) ([]mutation, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=Dir,GoFiles", ".")
	cmd.Dir = c.folder
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w: %s", c.folder, err, strings.TrimSpace(stderr.String()))
	}
	var listed struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("go list in %s: %w", c.folder, err)
	}
	var all []mutation
	for _, name := range listed.GoFiles {
		if !c.files.MatchString(name) {
			continue
		}
		path := filepath.Join(listed.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := mutationsOf(path, source)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing to mutate in %s", c.folder)
	}
	random := rand.New(rand.NewPCG(c.seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// session is one run of the command.
type session struct {
	config

	dir string // for the overlay
	out io.Writer
	end time.Time
}

// baseline runs the tests of the unchanged package, which must pass.
func (s *session) baseline(ctx context.Context) error {
	limit := s.limit
	s.limit = max(s.limit, s.total)
	begin := time.Now()
	if result, text := s.test(ctx, nil); result != survived {
		return fmt.Errorf("the tests of %s fail without any mutation:\n%s", s.folder, text)
	}
	took := time.Since(begin)
	if s.limit = limit; limit == 0 {
		s.limit = 10*time.Second + 4*took
	}
	_, err := fmt.Fprintf(s.out, "%s: the tests took %v; the limit of a mutation is %v\n",
		s.folder, took.Round(100*time.Millisecond), s.limit.Round(time.Second))
	return err
}

// try runs the tests with one mutation after the other and prints the score.
func (s *session) try(ctx context.Context, all []mutation) error {
	counts := map[outcome]int{}
	for _, m := range all {
		tried := counts[survived] + counts[failed] + counts[timedOut]
		if tried >= s.number || time.Now().After(s.end) {
			break
		}
		result, _ := s.test(ctx, &m)
		if ctx.Err() != nil {
			break
		}
		counts[result]++
		if result == survived {
			fmt.Fprintf(s.out, "survived  %s\n", m)
		}
	}
	caught := counts[failed] + counts[timedOut]
	_, err := fmt.Fprintf(s.out, "%s: %d of %d mutations were caught, %d of them by the time limit "+
		"(%d possible; %d more do not compile; seed %d)\n",
		s.folder, caught, caught+counts[survived], counts[timedOut], len(all), counts[notBuilt], s.seed)
	return err
}

// outcome is the result of the tests for a mutation.
type outcome int

const (
	survived outcome = iota
	failed
	timedOut
	notBuilt
)

// test runs the tests of the package with a mutation, or with none.
func (s *session) test(ctx context.Context, m *mutation) (outcome, string) {
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout", s.limit.String()}
	if m != nil {
		overlay, err := s.overlay(*m)
		if err != nil {
			return notBuilt, err.Error()
		}
		args = append(args, "-overlay", overlay)
	}
	at := len(s.testArgs)
	if i := slices.Index(s.testArgs, "-args"); i >= 0 {
		at = i
	}
	args = slices.Concat(args, s.testArgs[:at], []string{"."}, s.testArgs[at:])
	// go test ends the tests itself; this is for a build that hangs.
	ctx, cancel := context.WithTimeout(ctx, s.limit+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.folder
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	return judge(string(text), err), string(text)
}

// judge reads the output of go test.
func judge(text string, err error) outcome {
	switch {
	case err == nil:
		return survived
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return notBuilt
	case strings.Contains(text, "panic: test timed out after") || strings.Contains(text, "*** Test killed"):
		return timedOut
	}
	return failed
}

// overlay writes the files that make go test see a mutation.
func (s *session) overlay(m mutation) (string, error) {
	mutant := filepath.Join(s.dir, filepath.Base(m.file))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{m.file: mutant}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(s.dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(mutant, m.mutant(), 0o600), os.WriteFile(overlay, text, 0o600))
}
