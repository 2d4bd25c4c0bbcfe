package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
)

// jobState is the state of one job, or of one task of an array, as Slurm reports it.
type jobState struct {
	id     string // as squeue shows it: 12, or 12_3
	state  string // such as RUNNING
	reason string // the reason why it is pending
	code   int    // of the batch script; 128 + signal if a signal ended it
	output string // the file
}

// over reports whether the job has ended.
func (s jobState) over() bool {
	return slices.Contains([]string{
		"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
	}, s.state)
}

// exitCode returns the exit code for the end of the job.
func (s jobState) exitCode() int {
	if s.state != "COMPLETED" && s.code == 0 {
		return call.ExitFailure
	}
	return s.code
}

// parseJobs parses the output of "scontrol --oneliner show job": one line for each
// job.
func parseJobs(out string) []jobState {
	field := func(line, name string) string {
		m := regexp.MustCompile(`(?:^| )` + name + `=(.*?)(?: [A-Za-z][A-Za-z/:&_]*=|\s*$)`).FindStringSubmatch(line)
		if m == nil {
			return ""
		}
		return m[1]
	}
	var all []jobState
	for line := range strings.Lines(out) {
		s := jobState{id: printable.Text(field(line, "JobId")), state: printable.Text(field(line, "JobState")),
			reason: printable.Text(field(line, "Reason")), output: field(line, "StdOut")}
		if s.id == "" || s.state == "" {
			continue
		}
		if array := field(line, "ArrayJobId"); array != "" {
			s.id = printable.Text(array + "_" + field(line, "ArrayTaskId"))
		}
		s.code = parseCode(field(line, "ExitCode"))
		all = append(all, s)
	}
	return all
}

// parseCode parses an exit code of Slurm: 75:0, or 0:9 for a signal.
func parseCode(s string) int {
	code, sig, _ := strings.Cut(s, ":")
	n, _ := strconv.Atoi(code)
	if k, _ := strconv.Atoi(sig); k > 0 {
		return 128 + k
	}
	return n
}

// How often the output of a job is read, the number of reads between two queries to
// Slurm, how many queries may fail in a row, and the time within which a second
// interrupt cancels the job.
const (
	tailInterval   = 250 * time.Millisecond
	tailsPerAsking = 8
	failuresAtMost = 30
	secondChance   = 3 * time.Second
)

// follower watches a job from its submission to its end.
type follower struct {
	c       *call.Call
	job     string
	mode    string
	signals <-chan os.Signal
	tails   map[string]*tail    // by file
	last    map[string]jobState // of each job or task of an array, by id
	asked   time.Time           // of the first interrupt; zero: none yet
}

// follow returns when the job has ended, or when the user interrupts it.
func (f *follower) follow(ctx context.Context) error {
	f.c.Warn("text", "job "+f.job+" is submitted")
	tick := time.NewTicker(tailInterval)
	defer tick.Stop()
	failures := 0
	for n := 0; ; n++ {
		if n%tailsPerAsking == 0 {
			over, err := f.ask(ctx)
			switch {
			case err == nil:
				failures = 0
			case failures >= failuresAtMost:
				return fmt.Errorf("job %s: %w: the job may still run: squeue --job %s", f.job, err, f.job)
			default:
				failures++
			}
			f.read()
			if over {
				return call.ExitError(f.code())
			}
		}
		select {
		case <-tick.C:
			f.read()
		case s := <-f.signals:
			if f.interrupted(ctx, s) {
				f.c.Warn("text", fmt.Sprintf("job %s continues: scancel %s ends it", f.job, f.job))
				return call.EndedBy(s)
			}
		}
	}
}

// interrupted handles a signal, and reports whether to stop following without cancelling the job.
func (f *follower) interrupted(ctx context.Context, s os.Signal) (leave bool) {
	cancel := f.mode == onInterruptCancel
	if f.mode == onInterruptAsk && s == os.Interrupt {
		if cancel = !f.asked.IsZero() && time.Since(f.asked) < secondChance; !cancel {
			f.asked = time.Now()
			f.c.Warn("text", fmt.Sprintf("interrupt again within %v to cancel job %s; SIGTERM ends only this command", secondChance, f.job))
			return false
		}
	}
	if !cancel {
		return true
	}
	if out, err := exec.CommandContext(ctx, "scancel", f.job).CombinedOutput(); err != nil {
		f.c.Warn("text", fmt.Sprintf("scancel %s: %v: %s", f.job, err, printable.Text(string(bytes.TrimSpace(out)))))
	}
	return false
}

// ask queries Slurm for the state of the job, prints changes, and reports whether the job
// is over.
func (f *follower) ask(ctx context.Context) (over bool, err error) {
	out, err := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "job", f.job).Output()
	states := parseJobs(string(out))
	if err != nil || len(states) == 0 { // the controller removes jobs some minutes after their end
		states = f.accounted(ctx)
	}
	if len(states) == 0 {
		return f.over(), errors.Join(errors.New("scontrol show job does not list it"), err)
	}
	for _, s := range states {
		before := f.last[s.id]
		f.last[s.id] = s
		if s.state != before.state {
			text := fmt.Sprintf("job %s: %s", s.id, strings.ToLower(s.state))
			if s.state == "PENDING" && s.reason != "" && s.reason != "None" {
				text += " (" + s.reason + ")"
			}
			if s.over() && s.exitCode() != 0 {
				text += fmt.Sprintf(": exit code %d", s.exitCode())
			}
			f.c.Warn("text", text)
		}
		if s.output != "" && s.output != os.DevNull && f.tails[s.output] == nil && s.state != "PENDING" {
			f.tails[s.output] = &tail{path: s.output}
		}
	}
	f.forgetPending(states)
	return f.over(), nil
}

// forgetPending drops the states of array tasks that were reported together, such as
// 12_1-4, before each had its own number.
func (f *follower) forgetPending(states []jobState) {
	for id, s := range f.last {
		if !s.over() && !slices.ContainsFunc(states, func(n jobState) bool { return n.id == id }) {
			delete(f.last, id)
		}
	}
}

// accounted returns the states from Slurm's accounting, if it is enabled.
func (f *follower) accounted(ctx context.Context) []jobState {
	out, err := exec.CommandContext(ctx, "sacct", "--noheader", "--allocations", "--parsable2", "--jobs", f.job, "--format",
		"JobID,State,ExitCode").Output()
	if err != nil {
		return nil
	}
	var all []jobState
	for line := range strings.Lines(string(out)) {
		if w := strings.Split(strings.TrimSpace(line), "|"); len(w) == 3 {
			state, _, _ := strings.Cut(w[1], " ") // CANCELLED by 1000
			all = append(all, jobState{id: printable.Text(w[0]), state: printable.Text(state), code: parseCode(w[2])})
		}
	}
	return all
}

// over reports whether all known parts of the job have ended.
func (f *follower) over() bool {
	for _, s := range f.last {
		if !s.over() {
			return false
		}
	}
	return len(f.last) > 0
}

// code returns the exit code of the job, or the first one other than 0 of an array.
func (f *follower) code() int {
	for _, id := range slices.Sorted(maps.Keys(f.last)) {
		if code := f.last[id].exitCode(); code != 0 {
			return code
		}
	}
	return call.ExitSuccess
}

// read copies the new output of the job.
func (f *follower) read() {
	for _, path := range slices.Sorted(maps.Keys(f.tails)) {
		prefix := ""
		if len(f.tails) > 1 {
			prefix = printable.Text(filepath.Base(path)) + ": "
		}
		f.tails[path].copy(f.c.Stdout, prefix)
	}
}

func (f *follower) close() {
	for _, t := range f.tails {
		t.close()
	}
}

// tail is a growing file. A file that cannot be read, such as on a disk of another
// machine, is left out.
type tail struct {
	path string
	file *os.File
	rest []byte // an incomplete line
}

// copy writes the new complete lines.
func (t *tail) copy(w io.Writer, prefix string) {
	if t.file == nil {
		file, err := os.Open(t.path)
		if err != nil {
			return
		}
		t.file = file
	}
	added, _ := io.ReadAll(t.file) // an error occurs again the next time
	t.rest = append(t.rest, added...)
	for {
		line, rest, whole := bytes.Cut(t.rest, []byte{'\n'})
		if !whole {
			return
		}
		_, _ = fmt.Fprintf(w, "%s%s\n", prefix, line) // there is no other place to report to
		t.rest = rest
	}
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}
