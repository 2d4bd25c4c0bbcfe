package freeport_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/freeport"
)

// varChild makes this program take that many ports, print the first and wait for the
// end of its input.
const varChild = "FREEPORT_TAKE"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(varChild)); err == nil {
		first, _, err := freeport.Take(n)
		fmt.Println(first, err)
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(deadline.Each(m, time.Minute).Run())
}

func TestProcessesHaveOtherPorts(t *testing.T) {
	owner := map[int]int{}
	add := func(who, first, n int) {
		for p := first; p < first+n; p++ {
			if other, ok := owner[p]; ok {
				t.Errorf("port %d is given to %d and %d", p, other, who)
			}
			owner[p] = who
		}
	}
	add(0, freeport.Get(t, 7), 7)
	add(1, freeport.Get(t, 99), 99) // another block
	for child := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), varChild+"=5")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = in.Close(); _ = cmd.Wait() }()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var first int
		if _, err := fmt.Sscan(line, &first); err != nil || first == 0 {
			t.Fatalf("a child says %q", line)
		}
		add(2+child, first, 5)
	}
}

func TestPortsInUseAreLeftOut(t *testing.T) {
	first, give, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	give()
	for range 300 {
		got, give, err := freeport.Take(2)
		if err != nil {
			t.Fatal(err)
		}
		if got <= first && first < got+2 {
			t.Fatalf("%d and %d are given while somebody listens on %d", got, got+1, first)
		}
		give()
	}
}

func TestMoreThanABlockIsRefused(t *testing.T) {
	if _, _, err := freeport.Take(100); err == nil || !strings.Contains(err.Error(), "want 1 to 99") {
		t.Error(err)
	}
}
