package deadline

import (
	"context"
	"flag"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// asPackage makes the test's own program a package with a short deadline, of which one test runs.
const asPackage = "DEADLINE_AS_PACKAGE"

func TestMain(m *testing.M) {
	if os.Getenv(asPackage) != "" {
		goleak.VerifyTestMain(Each(m, 200*time.Millisecond))
	}
	goleak.VerifyTestMain(Each(m, time.Minute))
}

func hang() { <-make(chan struct{}) }

// parts are the tests that the child runs.
var parts = map[string]func(*testing.T){
	"hangs":            func(*testing.T) { hang() },
	"subtest hangs":    func(t *testing.T) { t.Run("one", func(*testing.T) { hang() }) },
	"parallel hangs":   func(t *testing.T) { t.Run("one", func(t *testing.T) { t.Parallel(); hang() }) },
	"hangs in cleanup": func(t *testing.T) { t.Cleanup(hang) },
	"hangs in a bubble": func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for t.Context().Err() == nil {
				<-time.After(time.Second)
			}
		})
	},
}

func TestPart(t *testing.T) {
	if f := parts[os.Getenv(asPackage)]; f != nil {
		f(t)
	}
}

func TestTestThatHangsEndsTheProcessWithAllStacks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	const place = "panic: deadline: github.com/ditask/ditask/internal/deadline."
	for part, function := range map[string]string{
		// a goroutine on either side of the bubble
		"hangs": "TestPart", "subtest hangs": "init.func", "parallel hangs": "init.func", "hangs in cleanup": "hang", "hangs in a bubble": "",
	} {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestPart$", "-test.timeout", "1m")
		cmd.Env = append(os.Environ(), asPackage+"="+part)
		out, err := cmd.CombinedOutput()
		line, stacks, _ := strings.Cut(string(out), "\n\n")
		if err == nil || !strings.HasPrefix(line, place+function) || !strings.Contains(line, " has run for more than 200ms") ||
			strings.Count(stacks, "goroutine ") < 3 {
			t.Errorf("%s: %v\n%s", part, err, out)
		}
	}
}

// fake is a package whose tests are a function.
type fake func() int

func (f fake) Run() int { return f() }

func TestDeadlineIsOffWithoutATimeoutAndAfterTheTests(t *testing.T) {
	was := flag.Lookup("test.timeout").Value.String()
	defer func() { _ = flag.Set("test.timeout", was) }() // what it was
	for timeout, want := range map[string]bool{"0": false, "1h": true} {
		if err := flag.Set("test.timeout", timeout); err != nil {
			t.Fatal(err)
		}
		var d *Tests
		armed := func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.timer != nil
		}
		d = Each(fake(func() int {
			if armed() != want {
				t.Errorf("-timeout %s: there is a deadline: %v", timeout, !want)
			}
			return 7
		}), time.Hour)
		if code := d.Run(); code != 7 || armed() {
			t.Errorf("-timeout %s: code %d; afterwards there is a deadline: %v", timeout, code, armed())
		}
		d.look() // one that was about to run when the tests ended
	}
}

// TestEachTestHasItsOwnTime has a test that ended be forgotten, and one that runs be kept.
func TestEachTestHasItsOwnTime(t *testing.T) {
	d := &Tests{limit: time.Hour, timer: time.NewTimer(time.Hour),
		since: map[string]time.Time{"goroutine 0": time.Now().Add(-2 * time.Hour)}}
	defer d.timer.Stop()
	d.look()
	first := maps.Clone(d.since)
	d.look()
	if len(first) != 1 || !maps.Equal(first, d.since) {
		t.Errorf("first %v, then %v", first, d.since)
	}
}

// running returns the functions of the tests that run now, without their package.
func running() (names []string) {
	for _, name := range slices.Sorted(maps.Values(tests(stacks()))) {
		names = append(names, name[strings.LastIndexByte(name, '/')+1:])
	}
	return names
}

func TestWaitForSubtestsDoesNotCount(t *testing.T) {
	check := func(when string, want ...string) {
		t.Helper()
		if got := running(); !slices.Equal(got, want) {
			t.Errorf("%s: %q run, want %q", when, got, want)
		}
	}
	const self = "deadline.TestWaitForSubtestsDoesNotCount"
	check("in the test", self)
	t.Run("group", func(t *testing.T) {
		check("in a subtest", self+".func2")
		t.Run("parallel", func(t *testing.T) {
			t.Parallel() // continues when the group has ended
			check("in a parallel subtest", self+".func2.1")
		})
		check("while another waits to run in parallel", self+".func2")
	})
	check("after the subtests", self)
}
