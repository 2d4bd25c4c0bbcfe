package terminaltest

import (
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo-terminal of the kernel, with a [Screen] behind it.
type Terminal struct {
	*Screen
	// Slave is the end for the program, a terminal to it.
	Slave  *os.File
	master *os.File
	t      testing.TB
	wait   sync.WaitGroup
	wake   chan struct{} // 1: something was written
}

// Open makes a terminal, which is closed at the end of the test.
func Open(t testing.TB, columns, lines int) *Terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{Screen: NewScreen(columns, lines), Slave: os.NewFile(uintptr(slave), name), master: master, t: t,
		wake: make(chan struct{}, 1)}
	term.size(columns, lines)
	term.wait.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			_, _ = term.Write(buf[:n])
			select {
			case term.wake <- struct{}{}:
			default:
			}
			if err != nil { // the slave is closed everywhere
				return
			}
		}
	})
	t.Cleanup(func() {
		term.Hangup()
		if f := term.Faults(); len(f) > 0 {
			t.Errorf("the terminal was written %q", f[:min(len(f), 5)])
		}
		_ = master.Close()
	})
	return term
}

// Hangup closes the program's end, and returns when all that was written is on the screen. Processes that have it end before.
func (t *Terminal) Hangup() {
	_ = t.Slave.Close() // also the second time
	t.wait.Wait()
}

func (t *Terminal) size(columns, lines int) {
	t.t.Helper()
	size := unix.Winsize{Row: uint16(lines), Col: uint16(columns)} //nolint:gosec // of a test
	if err := unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.t.Fatal(err)
	}
}

// Resize changes the size of the terminal and its screen.
func (t *Terminal) Resize(columns, lines int) {
	t.t.Helper()
	t.Screen.Resize(columns, lines)
	t.size(columns, lines)
}

// Await waits until the screen is as wanted, as long as the test may take.
func (t *Terminal) Await(wanted func(text string) bool) {
	t.t.Helper()
	for !wanted(t.Text()) {
		select {
		case <-t.wake:
		case <-t.t.Context().Done():
			t.t.Fatalf("the screen never was as wanted:\n%s", t.Text())
		}
	}
}

// Type writes what a person types.
func (t *Terminal) Type(text string) {
	t.t.Helper()
	if _, err := io.WriteString(t.master, text); err != nil {
		t.t.Fatal(err)
	}
}

// Settings returns the settings of the terminal that a program can leave in disorder.
func (t *Terminal) Settings() []uint32 {
	t.t.Helper()
	a, err := unix.IoctlGetTermios(int(t.master.Fd()), unix.TCGETS)
	if err != nil {
		t.t.Fatal(err)
	}
	return []uint32{a.Iflag, a.Oflag, a.Cflag, a.Lflag}
}
