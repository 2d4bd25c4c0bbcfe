//go:build linux

package cli_test

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/terminaltest"
)

// seen starts a ditask at a terminal, as its shell would.
func seen(t *testing.T, term *terminaltest.Terminal, env []string, args ...string) *exec.Cmd {
	t.Helper()
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	watch := leak.Check(t)
	cmd := exec.Command(p.ditask, args...)
	cmd.Dir = t.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.Slave, term.Slave, term.Slave
	cmd.Env = append(append(watch.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR=", "TMPDIR="+t.TempDir()), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the terminal is closed
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// tempOf returns the folder for temporary files of a process that was seen.
func tempOf(cmd *exec.Cmd) string {
	dir := ""
	for _, kv := range cmd.Env {
		if v, ok := strings.CutPrefix(kv, "TMPDIR="); ok {
			dir = v
		}
	}
	return dir
}

// picture returns the last picture of a training on a screen, from its title to the end of its rows, and what stands before and behind it.
func picture(t *testing.T, text string) (before, rows, behind string) {
	t.Helper()
	at := strings.LastIndex(text, "\nppo on CartPole-v1, ")
	if at < 0 {
		t.Fatalf("no picture:\n%s", text)
	}
	end := strings.Index(text[at+1:], "\nppo on CartPole-v1: ")
	if end < 0 {
		return text[:at+1], text[at+1:], ""
	}
	return text[:at+1], text[at+1 : at+1+end], text[at+2+end:]
}

func TestLiveViewAtSeveralWidths(t *testing.T) {
	for _, columns := range []int{40, 80, 200} {
		t.Run(strconv.Itoa(columns), func(t *testing.T) {
			term := terminaltest.Open(t, columns, 30)
			cmd := seen(t, term, nil, "train", "ppo", "--env", "CartPole-v1", "--steps", "60k", "--dir", "first", "-n", "3")
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v:\n%s", err, term.Text())
			}
			term.Hangup()
			before, rows, behind := picture(t, term.Text())
			if strings.Count(term.Text(), "ppo on CartPole-v1, seed 1") != 1 || strings.Contains(before, "█") {
				t.Errorf("parts of an earlier picture:\n%s", term.Text())
			}
			for _, want := range []string{"done", "steps     █", "100%", "now ", "return ", "scores ", "time "} {
				if !strings.Contains(rows, want) {
					t.Errorf("no %q in\n%s", want, rows)
				}
			}
			if columns >= 80 != strings.Contains(rows, " of 60,000") || columns >= 80 != strings.Contains(rows, "solved at 475.0") {
				t.Errorf("%d columns:\n%s", columns, rows)
			}
			for row := range strings.Lines(rows) {
				if len([]rune(strings.TrimSpace(row))) >= columns {
					t.Errorf("a row of %d columns: %q", len([]rune(row)), row)
				}
			}
			if !strings.Contains(before, "3 ready after") || !strings.Contains(before, "msg=finished") || strings.Contains(before,
				"msg=checkpoi\n") {
				t.Errorf("lines of the log are torn:\n%s", before)
			}
			if !strings.Contains(behind, "best evaluation: ") || !strings.Contains(behind, "run folder: ") {
				t.Errorf("the summary is not below:\n%s", behind)
			}
			if left, err := os.ReadDir(tempOf(cmd)); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// started reports whether a picture of a run that continues is on a screen.
func started(text string) bool {
	return strings.Contains(text, "\nspeed ") && strings.Contains(text, "\ntime ") && strings.HasSuffix(text, " left\n")
}

func TestLiveViewOfATerminalThatIsResized(t *testing.T) {
	term := terminaltest.Open(t, 120, 30)
	cmd := seen(t, term, nil, "train", "ppo", "--env", "CartPole-v1", "--steps", "100M", "--set", "eval_every=5k", "--dir", "first")
	term.Await(started)
	for _, columns := range []int{60, 45, 150, 80} {
		term.Resize(columns, 30)
		stamp := stepsOf(term.Text())
		term.Await(func(text string) bool { return stepsOf(text) != stamp }) // drawn again
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := code(t, cmd.Wait()); got != 130 {
		t.Errorf("exit code %d", got)
	}
	term.Hangup()
	text := term.Text()
	if n := strings.Count(text, "ppo on CartPole-v1, seed 1"); n != 1 || strings.Count(text, "\nspeed ") != 1 {
		t.Errorf("%d pictures:\n%s", n, text)
	}
	if !strings.Contains(text, "ppo on CartPole-v1, seed 1   stopped") && !strings.Contains(text, "ppo on CartPole-v1, seed 1   done") {
		t.Errorf("the outcome is missing:\n%s", text)
	}
}

// stepsOf returns the row of the time and the bar, which changes.
func stepsOf(text string) string {
	_, after, _ := strings.Cut(text, "\nsteps ")
	row, _, _ := strings.Cut(after, "\n")
	_, after, _ = strings.Cut(after, "\nreturn ")
	returns, _, _ := strings.Cut(after, "\n")
	return row + returns
}

// After Ctrl-C the terminal is as it was, and the cursor, which was never hidden, is below the picture.
func TestLiveViewEndsWithCtrlC(t *testing.T) {
	term := terminaltest.Open(t, 80, 30)
	settings := term.Settings()
	cmd := seen(t, term, nil, "train", "ppo", "--env", "CartPole-v1", "--steps", "100M", "--dir", "first")
	term.Await(started)
	term.Type("\x03")
	if got := code(t, cmd.Wait()); got != 130 {
		t.Errorf("exit code %d", got)
	}
	if !slices.Equal(settings, term.Settings()) {
		t.Error("the terminal has other settings")
	}
	if _, err := term.Slave.WriteString("$ "); err != nil {
		t.Fatal(err)
	}
	term.Hangup()
	if text := term.Text(); !strings.Contains(text, "\ntime ") || !strings.HasSuffix(text, "\n$\n") {
		t.Errorf("%s", text)
	}
}

// A process that was stopped and continues does not overwrite what the shell has written meanwhile.
func TestLiveViewThatWasSuspended(t *testing.T) {
	term := terminaltest.Open(t, 80, 40)
	cmd := seen(t, term, nil, "train", "ppo", "--env", "CartPole-v1", "--steps", "100M", "--dir", "first")
	term.Await(started)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	const shell = "[1]+  Stopped    ditask\n$ fg\nditask train\n"
	if _, err := term.Slave.WriteString(shell); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	term.Await(func(text string) bool {
		_, after, ok := strings.Cut(text, shell)
		return ok && strings.Contains(after, "ppo on CartPole-v1, seed 1")
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	term.Hangup()
	if text := term.Text(); strings.Count(text, "ppo on CartPole-v1, seed 1") != 2 || !strings.Contains(text, shell) {
		t.Errorf("%s", text)
	}
}

// A job in the background of a shell does not draw on the terminal.
func TestLiveViewInTheBackground(t *testing.T) {
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	term := terminaltest.Open(t, 80, 30)
	cmd := exec.Command(shell, "-c", "set -m; "+p.ditask+" train ppo --env CartPole-v1 --steps 20k --dir first & wait; echo over")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = t.TempDir(), append(os.Environ(), "TERM=xterm"), &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.Slave, term.Slave, term.Slave
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	term.Hangup()
	if text := term.Text(); strings.Contains(text, ", seed 1") || !strings.Contains(text, "last evaluation") || !strings.HasSuffix(text,
		"\nover\n") {
		t.Errorf("%s", text)
	}
}

func TestLiveViewOfSeeds(t *testing.T) {
	term := terminaltest.Open(t, 100, 30)
	cmd := seen(t, term, []string{"LC_ALL=C", "NO_COLOR=1"}, "train", "ppo", "--env", "CartPole-v1", "--steps", "20k", "--seeds", "3",
		"--dir", "all")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v:\n%s", err, term.Text())
	}
	term.Hangup()
	text := term.Text()
	if !strings.Contains(text, "ppo on CartPole-v1, 3 seeds   3 of 3 done") || strings.Count(text, "   done ") != 3 ||
		strings.Count(text, " at 1") < 1 || !strings.Contains(text, "\nbest evaluations of 3 seeds: ") {
		t.Errorf("%s", text)
	}
	if strings.ContainsAny(text, "█░▁") {
		t.Errorf("not ASCII:\n%s", text)
	}
}

// If a picture is turned off or cannot be drawn, there are lines, without control sequences.
func TestLinesInThePlaceOfALiveView(t *testing.T) {
	for name, c := range map[string]struct{ env, args []string }{
		"dumb":     {[]string{"TERM=dumb"}, nil},
		"lines":    {nil, []string{"--view", "lines"}},
		"no table": {nil, []string{"--no-table"}},
		"quiet":    {nil, []string{"--view=quiet"}},
	} {
		t.Run(name, func(t *testing.T) {
			term := terminaltest.Open(t, 200, 30)
			args := append([]string{"train", "ppo", "--env", "CartPole-v1", "--steps", "4k", "--dir", "first"}, c.args...)
			if err := seen(t, term, c.env, args...).Wait(); err != nil {
				t.Fatalf("%v:\n%s", err, term.Text())
			}
			term.Hangup()
			text := term.Text()
			if strings.Contains(text, "seed 1") || strings.Contains(text, "█") || !strings.Contains(text, "last evaluation") {
				t.Errorf("%s", text)
			}
			if got := strings.Contains(text, "] steps "); got == (name == "quiet") {
				t.Errorf("lines: %v\n%s", got, text)
			}
		})
	}
}
