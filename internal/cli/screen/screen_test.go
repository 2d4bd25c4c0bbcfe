//go:build unix

package screen

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
)

func states(now time.Time) []launch.State {
	return []launch.State{
		{ID: 0, Phase: launch.Running, StatusAt: now, Status: control.Status{Role: "learner", Step: 1200, Rate: 350.4, Queue: 3, Peers: 2,
			Drops: 1234567, Reconnects: 1, RTT: 180 * time.Microsecond, RTTPeer: 2}},
		{ID: 1, Phase: launch.Backoff, Restarts: 2, Labels: []string{"gpu"},
			Status: control.Status{Step: 70, Rate: 12, Queue: 1, Lag: 8, Peers: 2}},
		{ID: 2, Phase: launch.Running, StatusAt: now.Add(-9 * time.Second), Status: control.Status{Rate: 0.125, Lag: 12.34, Note: "x\x1b[2J"}},
	}
}

func TestTableHasOneLineANode(t *testing.T) {
	now := time.Unix(1000, 0)
	for columns, want := range map[int]string{
		120: `NODE  ROLE     STATE     STEP  RATE    QUEUE  LAG   DROPS  PEERS  RTT        RECONN  RESTARTS  NOTE
0     learner  running   1200  350/s   3      0     1234k  2      0.18ms #2  1       0
1     gpu      back-off  70    0/s     0      0     0      0      -          0       2
2     -        running   0     0.12/s  0      12.3  0      0      -          0       0         silent for 9s`,
		80: `NODE  ROLE     STATE     STEP  RATE    QUEUE  LAG   DROPS  NOTE
0     learner  running   1200  350/s   3      0     1234k
1     gpu      back-off  70    0/s     0      0     0
2     -        running   0     0.12/s  0      12.3  0      silent for 9s`,
		50: `NODE  ROLE     STATE     STEP  RATE    NOTE
0     learner  running   1200  350/s
1     gpu      back-off  70    0/s
2     -        running   0     0.12/s  silent for`,
	} {
		if got := strings.Join(table(states(now), now, columns, 24), "\n"); got != want {
			t.Errorf("%d columns:\n%s", columns, got)
		}
	}
}

// The table keeps its lines and columns, with any names of nodes.
func TestTableOfHostileNames(t *testing.T) {
	var c1 strings.Builder
	for r := rune(0x80); r <= 0x9f; r++ {
		c1.WriteRune(r)
	}
	now := time.Unix(1000, 0)
	for _, name := range []string{
		logtest.Hostile, c1.String(), "a\tb\tc", "a\nb", "a\v\f\rb", "\xff\x9b2J", "\x1b[9A", "learner\u202e0 renrael",
		"日本日本日本日本日本", "👩‍💻👩‍💻👩‍💻👩‍💻", "e\u0301\u0301",
	} {
		s := states(now)
		s[0].Status.Role, s[1].Labels, s[1].Status.Note = name, []string{name, name}, name
		for _, columns := range []int{20, 50, 80, 120, 1000} {
			rows := table(s, now, columns, 24)
			if len(rows) != len(s)+1 || logtest.Faults(strings.Join(rows, "\n")) != "" {
				t.Errorf("%q: %s", name, strings.Join(rows, "\n"))
			}
			before, _, _ := strings.Cut(rows[0], "STATE")
			for i, r := range rows {
				if widthOf(r) >= columns || strings.ContainsRune(r, '\t') {
					t.Errorf("%q: %d columns: %q", name, columns, r)
				}
				if columns == 1000 && !strings.HasSuffix(cut(r, widthOf(before)), "  ") {
					t.Errorf("%q: row %d is out of line:\n%s", name, i, strings.Join(rows, "\n"))
				}
			}
		}
	}
}

// cut returns the part of a row before a column.
func cut(row string, column int) string {
	width := 0
	for i, r := range row {
		if width >= column {
			return row[:i]
		}
		width += widthOfRune(r)
	}
	return row
}

func TestTableFitsTheTerminal(t *testing.T) {
	now := time.Unix(1000, 0)
	rows := table(append(states(now), states(now)...), now, 20, 6)
	if len(rows) != 4 || rows[3] != "... 4 more" {
		t.Errorf("%q", rows)
	}
	for _, r := range rows {
		if len(r) >= 20 || strings.ContainsRune(r, '\x1b') {
			t.Errorf("%q", r)
		}
	}
}

func TestLinesPushTheTableAway(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(1000, 0)
	s := &Screen{stderr: &b, now: func() time.Time { return now }}
	w := s.Writer(&b)
	_, _ = w.Write([]byte("first\n"))
	s.show(table(states(now)[:1], now, 20, 24))
	b.Reset()
	_, _ = w.Write([]byte("second\n"))
	_, _ = w.Write([]byte("third\n"))
	if got, want := b.String(), "\x1b[2A\r\x1b[Jsecond\nthird\n"; got != want {
		t.Errorf("got %q", got)
	}
	b.Reset()
	s.show(table(states(now)[:1], now, 20, 24))
	s.show(table(states(now)[:1], now, 20, 24))
	if n := strings.Count(b.String(), "\x1b[2A"); n != 1 {
		t.Errorf("erased %d times: %q", n, b.String())
	}
}

func TestDrawLeavesNothingBehind(t *testing.T) {
	var b bytes.Buffer
	s := &Screen{stderr: &b, now: time.Now}
	drawn := make(chan struct{}, 100)
	stop := s.Draw(func() []launch.State { return nil }, func() (int, int) {
		select {
		case drawn <- struct{}{}:
		default:
		}
		return 80, 24
	}, time.Millisecond)
	<-drawn
	<-drawn
	stop()
	if !strings.HasSuffix(b.String(), "\x1b[1A\r\x1b[J") {
		t.Errorf("got %q", b.String())
	}
}

// TestTableIsBackAfterALine draws once an hour, but the table returns soon after a
// line of the log: with one drawing for lines that arrive together.
func TestTableIsBackAfterALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		s := &Screen{stderr: &b, now: time.Now}
		stop := s.Draw(func() []launch.State { return nil }, func() (int, int) { return 80, 24 }, time.Hour)
		w := s.Writer(&b)
		<-time.After(time.Hour)
		synctest.Wait()
		for range 2 {
			b.Reset()
			_, _ = w.Write([]byte("one\n"))
			_, _ = w.Write([]byte("two\n"))
			<-time.After(moment)
			synctest.Wait()
			if got, want := b.String(), "\x1b[1A\r\x1b[Jone\ntwo\n"+table(nil, time.Now(), 80, 24)[0]+"\x1b[K\n\r\x1b[J"; got != want {
				t.Errorf("got %q", got)
			}
		}
		stop()
	})
}

// paused is a terminal that accepts no output until the test releases it.
type paused struct{ release chan struct{} }

func (p paused) Write(b []byte) (int, error) {
	<-p.release
	return len(b), nil
}

func TestEndDoesNotWaitForAPausedTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal := paused{make(chan struct{})}
		now := time.Now()
		s := &Screen{stderr: terminal, now: time.Now} // no signals in the bubble
		stop := s.Draw(func() []launch.State { return states(now) }, func() (int, int) { return 80, 24 }, time.Second)
		<-time.After(2 * time.Second)
		began := time.Now()
		stop()
		if d := time.Since(began); d != eraseWithin {
			t.Errorf("it takes %v", d)
		}
		close(terminal.release)
	})
}

func TestNumbersAreShort(t *testing.T) {
	for in, want := range map[uint64]string{0: "0", 99_999: "99999", 100_000: "100k", 99_999_999: "99999k", 100_000_000: "100M"} {
		if got := count(in); got != want {
			t.Errorf("%d: %s", in, got)
		}
	}
	for in, want := range map[float64]string{0: "0", 3: "3", 0.25: "0.25", 9.99: "9.99", 10.25: "10.2", 99.94: "99.9", 100.4: "100",
		1234.5: "1234"} {
		if got := number(in); got != want {
			t.Errorf("%v: %s", in, got)
		}
	}
	for in, want := range map[time.Duration]string{
		200 * time.Microsecond: "0.2ms", 9900 * time.Microsecond: "9.9ms", 10 * time.Millisecond: "10ms",
		999 * time.Millisecond: "999ms", time.Second: "1.0s",
	} {
		if got := short(in); got != want {
			t.Errorf("%v: %s", in, got)
		}
	}
}

// A row of as many columns as the terminal has, or with a wide character that goes over its
// edge, would take two lines there.
func TestRowsFit(t *testing.T) {
	for in, want := range map[string]string{"ab": "ab", "abcd": "abc", "äöüß": "äöü", "ab  ": "ab", "日本": "日", "a日本": "a日", "👩": "👩"} {
		if got := fit(in, 4); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := fit("a", 0); got != "" {
		t.Errorf("%q", got)
	}
}

// After the process was stopped and continues, a new picture begins at the cursor: the shell has written behind the last one.
func TestPictureAfterAStop(t *testing.T) {
	var b bytes.Buffer
	again := make(chan os.Signal, 1)
	s := &Screen{stderr: &b, now: time.Now, again: again}
	s.show([]string{"a", "b"})
	again <- os.Interrupt // any
	b.Reset()
	s.show([]string{"c"})
	if got := b.String(); got != "c\x1b[K\n\r\x1b[J" {
		t.Errorf("%q", got)
	}
}

// In a terminal that has become narrower, rows take more lines.
func TestPictureInANarrowerTerminal(t *testing.T) {
	var b bytes.Buffer
	columns := 20
	s := &Screen{stderr: &b, now: time.Now, size: func() (int, int) { return columns, 24 }}
	s.show([]string{"0123456789", "\x1b[1m0123\x1b[0m", ""})
	for _, c := range []struct {
		columns int
		want    string
	}{{10, "\x1b[3A"}, {9, "\x1b[4A"}, {5, "\x1b[4A"}, {3, "\x1b[7A"}} {
		columns = c.columns
		b.Reset()
		s.show([]string{"0123456789", "\x1b[1m0123\x1b[0m", ""})
		if !strings.HasPrefix(b.String(), c.want) {
			t.Errorf("%d columns: %q", c.columns, b.String())
		}
	}
}
