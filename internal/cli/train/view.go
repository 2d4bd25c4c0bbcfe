package train

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/job"
	"github.com/ditask/ditask/internal/cli/live"
	"github.com/ditask/ditask/internal/cli/screen"
	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/train"
)

// The values of --view.
const (
	viewAuto  = "auto"
	viewLive  = "live"
	viewLines = "lines"
	viewQuiet = "quiet"
)

// view is the output of a command.
type view struct {
	mode   string // live, lines or quiet; empty: lines, and the table of the nodes as for any job
	report string // a file for reports, in a process that another command follows
}

// viewOf chooses the output.
func (c command) viewOf(ctx *urfave.Context) (view, error) {
	mode, report := ctx.String("view"), ctx.String("report")
	switch mode {
	case viewLines, viewQuiet:
		return view{mode, report}, nil
	case viewAuto, viewLive:
	default:
		return view{}, fmt.Errorf("--view %q: want auto, live, lines or quiet", mode)
	}
	if report != "" {
		return view{"", report}, nil
	}
	why := ""
	switch {
	case screen.Terminal(c.Stderr) == nil:
		why = "stderr is not a terminal"
	case !live.Capable(os.Getenv("TERM")):
		why = fmt.Sprintf("the terminal cannot move its cursor: TERM is %q", os.Getenv("TERM"))
	case job.Several(ctx):
		why = "this job has several launchers"
	case ctx.String("log-format") != "text":
		why = "it needs --log-format text"
	case ctx.Bool("no-table"):
		why = "--no-table turns it off"
	}
	switch {
	case why == "":
		return view{viewLive, ""}, nil
	case mode == viewLive:
		return view{}, fmt.Errorf("--view live: %s", why)
	}
	return view{}, nil
}

// told is the content of the file of a node's reports.
type told struct {
	train.Report
	Summary string `json:"summary,omitempty"` // at the end
}

// node runs this process as a node.
func (c command) node(ctx context.Context, cfg *train.Config, node *parallel.Node, v view) error {
	out := train.Output{Program: c.program, Progress: &sparse{w: c.Stdout}, Summary: c.Stdout}
	if v.mode == viewQuiet {
		out.Progress = nil
	}
	if v.report == "" {
		return cfg.Run(ctx, node, out)
	}
	var last told
	var summary bytes.Buffer
	out.Progress, out.Summary = nil, &summary
	out.Report = func(r *train.Report) {
		last.Report = *r
		writeReport(v.report, &last)
	}
	err := cfg.Run(ctx, node, out)
	if summary.Len() > 0 { // this node has it
		last.Summary = summary.String()
		writeReport(v.report, &last)
	}
	return err
}

// writeReport replaces a report. It ignores errors, as the report is only for the live picture.
func writeReport(path string, t *told) {
	text, err := json.Marshal(t)
	if err != nil {
		return
	}
	if err := safefile.Write(path+".new", text, 0o600); err != nil {
		return
	}
	_ = os.Rename(path+".new", path)
}

// maxReport bounds the file of a report.
const maxReport = 1 << 20

// reports reads the reports of a running training.
type reports struct {
	path, dir string
	text      []byte // of the last one
	told      told
	any       bool
	history   live.History
	saved     time.Time // when the last checkpoint was made
	looked    time.Time // when the checkpoint was last looked for
}

// poll reads the newest report.
func (r *reports) poll(now time.Time) {
	if now.Sub(r.looked) >= time.Second {
		r.looked = now
		if info, err := os.Stat(filepath.Join(r.dir, rl.CheckpointFile)); err == nil {
			r.saved = info.ModTime()
		}
	}
	f, err := os.Open(r.path)
	if err != nil {
		return
	}
	text, err := io.ReadAll(io.LimitReader(f, maxReport))
	_ = f.Close() // it was only read
	if err != nil || bytes.Equal(text, r.text) {
		return
	}
	r.text = text
	var t told
	if json.Unmarshal(text, &t) != nil {
		return
	}
	r.told, r.any = t, true
	r.history.Add(&r.told.Report)
}

// run returns the data of the picture.
func (r *reports) run(cfg *train.Config, began, now time.Time) live.Run {
	run := live.Run{Folder: r.dir, History: &r.history, Limit: cfg.Duration(), Saved: -1, Elapsed: now.Sub(began)}
	if r.any {
		run.Report = &r.told.Report
	}
	if r.saved.After(began) {
		run.Saved = max(now.Sub(r.saved), 0)
	}
	if until := cfg.Until(); until != 0 {
		run.Threshold, run.Goal = until, "ends at"
	} else if at, ok := train.Threshold(cfg.Env()); ok {
		run.Threshold, run.Goal = at, "solved at"
	}
	return run
}

// watch draws the picture of one run.
type watch struct {
	cfg     *train.Config
	temp    string
	path    string
	began   time.Time
	reports reports
	signals chan os.Signal
	state   string
}

// newWatch makes a private folder for the reports.
func newWatch(cfg *train.Config, dir string) (*watch, error) {
	temp, err := os.MkdirTemp("", "ditask-view-*")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(temp, "report.json")
	w := &watch{cfg: cfg, temp: temp, path: path, began: time.Now(), reports: reports{path: path, dir: dir}, signals: make(chan os.Signal, 1)}
	signal.Notify(w.signals, os.Interrupt, syscall.SIGTERM) // the launcher also receives and forwards them
	return w, nil
}

// rows returns the lines of the picture: it is a [job.View].
func (w *watch) rows(nodes []launch.State, columns, lines int) []string {
	now := time.Now()
	w.reports.poll(now)
	select {
	case <-w.signals:
		w.state = "stopping"
	default:
	}
	r := w.reports.run(w.cfg, w.began, now)
	r.Title = fmt.Sprintf("%s on %s, seed %d", w.cfg.Algorithm().Name, w.cfg.Env(), w.cfg.Seed())
	r.Nodes, r.State = nodes, w.ended(nodes)
	return live.Rows(r, columns, lines, live.StyleOf(os.Getenv))
}

// ended returns the outcome of the run, or the current state if it has not ended.
func (w *watch) ended(nodes []launch.State) string {
	over := len(nodes) > 0
	for _, n := range nodes {
		if n.Phase == launch.Failed {
			return "failed"
		}
		over = over && n.Phase == launch.Ended
	}
	switch {
	case w.reports.told.Summary != "":
		return "done"
	case over:
		return cmp.Or(map[string]string{"stopping": "stopped"}[w.state], "ended")
	}
	return w.state
}

// close writes the summary, and removes the reports.
func (w *watch) close(stdout io.Writer) {
	signal.Stop(w.signals)
	w.reports.poll(time.Now())
	_, _ = io.WriteString(stdout, w.reports.told.Summary) // the outcome of the job is its exit code
	_ = os.RemoveAll(w.temp)
}

// watchSeeds begins a picture of several runs. It appends arguments for their reports to args. Output to stdout appears above
// the picture. unwatch draws it for the last time.
func (c command) watchSeeds(cfg *train.Config, runs []oneRun, args [][]string) (stdout io.Writer, unwatch func(), err error) {
	temp, err := os.MkdirTemp("", "ditask-view-*")
	if err != nil {
		return nil, nil, err
	}
	for i := range runs {
		path := filepath.Join(temp, fmt.Sprintf("seed-%d.json", runs[i].seed))
		runs[i].reports = reports{path: path, dir: runs[i].dir}
		args[i] = append(args[i], "--report", path)
	}
	began := time.Now()
	title := fmt.Sprintf("%s on %s, %d seeds", cfg.Algorithm().Name, cfg.Env(), len(runs))
	rows := func(columns, lines int) []string {
		now := time.Now()
		all := make([]live.Seed, len(runs))
		for i := range runs {
			all[i] = runs[i].look(cfg, now)
		}
		return live.SeedRows(title, all, now.Sub(began), columns, lines, live.StyleOf(os.Getenv))
	}
	s := screen.New(c.Stderr)
	stop := s.DrawRows(rows, screen.Terminal(c.Stderr), viewInterval, true)
	stdout = c.Stdout
	if screen.Terminal(c.Stdout) != nil {
		stdout = s.Writer(c.Stdout)
	}
	return stdout, func() {
		stop()
		_ = os.RemoveAll(temp) // it has only reports
	}, nil
}

// viewInterval is how often the picture of several runs is drawn.
const viewInterval = 250 * time.Millisecond

// look returns the row of a run.
func (r *oneRun) look(cfg *train.Config, now time.Time) live.Seed {
	r.mu.Lock()
	phase, began := r.phase, r.began
	r.mu.Unlock()
	if phase != waiting {
		r.reports.poll(now)
	}
	run := r.reports.run(cfg, began, now)
	return live.Seed{
		Name: fmt.Sprintf("seed %d", r.seed), Run: run, Waiting: phase == waiting, Done: phase == done, Failed: phase == failed,
	}
}
