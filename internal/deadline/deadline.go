// Package deadline ends a test that hangs, with the stacks of all goroutines, long before go test
// ends the whole package.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }
//	func TestMain(m *testing.M) { os.Exit(deadline.Each(m, 2*time.Minute).Run()) }
//
// The deadline holds for each test and each subtest by itself. The time in which a test waits for its
// subtests, or to run in parallel with others, does not count. Benchmarks have no deadline. Tests in a
// bubble of testing/synctest have one too, in real time.
//
// A deadline is no assertion about speed: it should be many times what the slowest test takes on a
// busy machine. go test -timeout 0, for a debugger, turns it off.
//
// No goroutine runs between two looks, so leak checks see nothing of it.
package deadline

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tests are the tests of a package, with a deadline for each.
type Tests struct {
	m     interface{ Run() int }
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer          // nil after the end
	since map[string]time.Time // when a goroutine of a test was first seen
}

// Each returns m, which is a *testing.M, with a deadline for each test. A test that runs for longer, by a
// quarter of limit at most, ends the process with a panic that names it.
func Each(m interface{ Run() int }, limit time.Duration) *Tests {
	return &Tests{m: m, limit: limit}
}

// Run runs the tests and returns the exit code.
func (d *Tests) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.timeout"); f != nil && f.Value.String() == "0s" {
		return d.m.Run()
	}
	d.mu.Lock()
	d.since = map[string]time.Time{}
	d.timer = time.AfterFunc(d.limit/4, d.look)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.timer.Stop()
		d.timer = nil
		d.mu.Unlock()
	}()
	return d.m.Run()
}

// look ends the process if a test is over its deadline.
func (d *Tests) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer == nil {
		return
	}
	running := tests(stacks())
	now := time.Now()
	for id, name := range running {
		first, seen := d.since[id]
		if !seen {
			d.since[id] = now
		} else if now.Sub(first) >= d.limit {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("deadline: %s has run for more than %v", name, d.limit))
		}
	}
	for id := range d.since {
		if _, still := running[id]; !still {
			delete(d.since, id)
		}
	}
	d.timer.Reset(d.limit / 4)
}

// stacks returns the stacks of all goroutines.
func stacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		buffer := make([]byte, size)
		if n := runtime.Stack(buffer, true); n < size {
			return buffer[:n]
		}
	}
}

// waits are where a test waits for its subtests, or to run in parallel with others.
var waits = []string{"\ntesting.(*T).Run(", "\ntesting.(*T).Parallel("}

// tests finds the goroutines that run a test, and the function of each, in the stacks of all.
func tests(stacks []byte) map[string]string {
	running := map[string]string{}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		before, _, is := strings.Cut(stack, "\ntesting.tRunner(")
		if !is || slices.ContainsFunc(waits, func(call string) bool { return strings.Contains(before, call) }) {
			continue
		}
		// A stack begins with "goroutine 7 [state]:", and has two lines for each call: the function
		// and the place. tRunner itself waits, in its own function, for subtests in parallel.
		lines := strings.Split(before, "\n")
		if len(lines) < 2 || strings.HasPrefix(lines[1], "testing.tRunner.") {
			continue
		}
		id, _, _ := strings.Cut(lines[0], " [")
		running[id] = function(lines[1:])
	}
	return running
}

// function returns the outermost function of a stack that is not of package testing.
func function(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "testing.") || strings.HasPrefix(line, "panic(") {
			continue
		}
		return line[:max(strings.LastIndexByte(line, '('), 0)]
	}
	return "a test"
}
