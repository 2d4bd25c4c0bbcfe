package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, time.Minute)) }

// create makes a file in a folder of the test.
func create(t *testing.T, limit int64) (r *Recorder, path string) {
	t.Helper()
	path = Path(t.TempDir(), 0, 0)
	r, err := Create(path, Head{Job: "j"}, limit)
	if err != nil {
		t.Fatal(err)
	}
	return r, path
}

// TestFileThatCannotBeWrittenEndsTheRecording has the file closed under the recorder, before each kind of write.
func TestFileThatCannotBeWrittenEndsTheRecording(t *testing.T) {
	for name, write := range map[string]func(*Recorder){
		"a record":                func(r *Recorder) { r.Ready() },
		"a record and a payload":  func(r *Recorder) { r.Received("e", 1, 1, nil, make([]byte, 64<<10)) },
		"the end":                 func(*Recorder) {},
		"a record with a fault":   func(r *Recorder) { r.json(KindPeer, nil, func() {}) },
		"a declaration and peers": func(r *Recorder) { r.Declare(Event{Name: "e"}); r.Peer(Peer{}) },
	} {
		r, _ := create(t, 0)
		_ = r.file.Close()
		size := r.size
		write(r)
		if name != "the end" {
			if !r.over || r.Full() {
				t.Errorf("%s: over %v, full %v", name, r.over, r.Full())
			}
			if r.Ready(); r.size != size {
				t.Errorf("%s: it has continued", name)
			}
		}
		err := r.Close()
		want := os.ErrClosed.Error()
		if name == "a record with a fault" {
			want = "unsupported type"
		}
		if err == nil || !strings.HasPrefix(err.Error(), "trace file: ") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "close ") {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: closed again: %v", name, err)
		}
	}
}

func TestErrorOfCloseIsReturned(t *testing.T) {
	r, _ := create(t, 0)
	r.mu.Lock()
	r.end(EndClosed)
	r.mu.Unlock()
	_ = r.file.Close()
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "close ") {
		t.Errorf("%v", err)
	}
}

func TestFirstErrorStays(t *testing.T) {
	r, _ := create(t, 0)
	first := errors.New("the first")
	r.fail(first)
	r.fail(errors.New("the second"))
	if err := r.Close(); !errors.Is(err, first) {
		t.Errorf("%v", err)
	}
}

func TestFileThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(dir, Head{}, 0); err == nil || !strings.HasPrefix(err.Error(), "trace file: open "+dir) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if _, err := Create("/dev/full", Head{}, 0); err == nil || !strings.HasPrefix(err.Error(), "trace file: ") {
			t.Errorf("a full disk: %v", err)
		}
	}
}

// TestLimitIsExact fills a file up to its last byte, and one byte beyond.
func TestLimitIsExact(t *testing.T) {
	const payload = 100
	r, path := create(t, 0)
	if r.limit != DefaultLimit {
		t.Errorf("the limit is %d", r.limit)
	}
	r.Declare(Event{Name: "e"})
	r.Received("e", 1, 1, nil, make([]byte, payload))
	need := r.size + endRoom
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || int64(len(b)) > need {
		t.Errorf("%d bytes, and there was room for %d: %v", len(b), need, err)
	}
	for limit, full := range map[int64]bool{need: false, need - 1: true} {
		r, path := create(t, limit)
		r.Declare(Event{Name: "e"})
		r.Received("e", 1, 1, nil, make([]byte, payload))
		if r.Full() != full || r.over != full {
			t.Errorf("limit %d of %d: full %v", limit, need, r.Full())
		}
		r.Ready() // no record follows the end
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || int64(len(b)) > limit || bytes.Count(b, []byte(`{"reason":`)) != 1 {
			t.Errorf("limit %d: %d bytes: %v", limit, len(b), err)
		}
	}
}

// TestSizeIsThatOfTheFile, from its first record on.
func TestSizeIsThatOfTheFile(t *testing.T) {
	r, path := create(t, 0)
	for _, write := range []func(){
		func() {}, r.Ready, func() { r.Declare(Event{Name: "e"}) }, func() { r.Sent("e", 1, 1, 1) },
		func() { r.Received("e", 1, 1, []byte("h"), make([]byte, 7)) }, func() { r.Received("e", 1, 1, nil, make([]byte, 100_000)) },
	} {
		write()
		if info, err := os.Stat(path); err != nil || info.Size() != r.size {
			t.Fatalf("%+v, %v: the recorder has counted %d bytes", info, err, r.size)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestEachEventKeepsItsNumber declares three events, one of them twice.
func TestEachEventKeepsItsNumber(t *testing.T) {
	r, path := create(t, 0)
	for i, name := range []string{"a", "b", "a", "c"} {
		r.Declare(Event{Name: name, Queue: i}) // which tells the two declarations of a apart
	}
	for _, name := range []string{"a", "b", "c"} {
		r.Sent(name, 1, 1, 1)
	}
	// The boundary between a record in one write and one in two.
	for _, n := range []int{64<<10 - 1, 64 << 10} {
		r.Received("b", 1, 1, []byte("h"), bytes.Repeat([]byte{7}, n))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := NewReader(file)
	reader.Payloads = true
	var got []string
	for {
		rec, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event != nil {
			got = append(got, fmt.Sprint(rec.Kind, rec.Event.Name, rec.Event.Queue, "+", len(rec.Payload)))
		}
	}
	if want := "2a0+0 2b1+0 2a2+0 2c3+0 3a2+0 3b1+0 3c3+0 4b1+65535 4b1+65536"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// raw is a file of records: each a kind and a body.
func raw(records ...string) []byte {
	b := []byte(magic)
	for _, r := range records {
		b = le.AppendUint32(b, uint32(8+len(r)))
		b = append(b, r[0])
		b = le.AppendUint64(b, 1)
		b = append(b, r[1:]...)
	}
	return b
}

// TestMalformedRecords is the table of records that a reader refuses, and of the shortest that it accepts.
func TestMalformedRecords(t *testing.T) {
	event, err := json.Marshal(Event{Name: "e"})
	if err != nil {
		t.Fatal(err)
	}
	declared := "\x02\x00\x00" + string(event)
	zeros := func(kind Kind, n int) string { return string(rune(kind)) + strings.Repeat("\x00", n) }
	for _, tt := range []struct {
		name string
		file []byte
		want string // of the error; none: the end
	}{
		{"nothing", nil, "it does not begin with"},
		{"another file", []byte("ditrace2"), "it does not begin with"},
		{"no record", raw(), ""},
		{"a kind that is not known", raw("\x63abc"), ""},
		{"a length without its head", append([]byte(magic), 8, 0, 0, 0), ""},
		{"a length below its head", append([]byte(magic), bytes.Repeat([]byte{7, 0, 0, 0, 3}, 5)...), "a record of -2 bytes"},

		{"a head that is no JSON", raw("\x01{"), "unexpected end of JSON"},
		{"a declaration of one byte", raw("\x02a"), "a short record"},
		{"a declaration that is no JSON", raw("\x02ab{"), "unexpected end of JSON"},
		{"a peer that is no JSON", raw("\x05{"), "unexpected end of JSON"},
		{"an end that is no JSON", raw("\x07{"), "unexpected end of JSON"},
		{"a message sent", raw(declared, zeros(KindSent, messageHead+8)), ""},
		{"a message sent, too short", raw(declared, zeros(KindSent, messageHead+7)), "a short record"},
		{"a message received", raw(declared, zeros(KindReceived, receivedHead)), ""},
		{"a message received, too short", raw(declared, zeros(KindReceived, receivedHead-1)), "a short record"},
		{"a header as long as its record", raw(declared, zeros(KindReceived, messageHead)+"\x02\x00ab"), ""},
		{"a header that is longer than its record", raw(declared, zeros(KindReceived, messageHead)+"\x03\x00ab"), "a header of 3 bytes"},
		{"an event that was not declared", raw(zeros(KindSent, messageHead+8)), "event number 0 is not declared"},
	} {
		for _, payloads := range []bool{true, false} {
			r := NewReader(bytes.NewReader(tt.file))
			r.Payloads = payloads
			var err error
			for err == nil {
				_, err = r.Next()
			}
			switch {
			case tt.want == "" && !errors.Is(err, io.EOF):
				t.Errorf("%s, payloads %v: %v, want the end", tt.name, payloads, err)
			case tt.want != "" && (!errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%s, payloads %v: %v, want %s", tt.name, payloads, err, tt.want)
			}
		}
	}
}

// TestTornMalformedRecordIsMalformed: a file that is not a trace is not treated as one that ends early.
func TestTornMalformedRecordIsMalformed(t *testing.T) {
	whole := raw("\x04" + strings.Repeat("\x00", receivedHead) + strings.Repeat("x", 100))
	r := NewReader(bytes.NewReader(whole[:len(whole)-50]))
	if _, err := r.Next(); !errors.Is(err, ErrFormat) || r.Torn() {
		t.Errorf("%v, torn %v", err, r.Torn())
	}
}

// TestLargestRecord has a record of the largest size, whose bytes are missing, and one that is larger.
func TestLargestRecord(t *testing.T) {
	for size, torn := range map[uint32]bool{maxRecord: true, maxRecord + 1: false} {
		b := le.AppendUint32([]byte(magic), size+headBytes-4)
		b = append(b, make([]byte, headBytes-4)...)
		r := NewReader(bytes.NewReader(b))
		if _, err := r.Next(); errors.Is(err, io.EOF) != torn || errors.Is(err, ErrFormat) == torn || r.Torn() != torn {
			t.Errorf("%d bytes: %v, torn %v", size, err, r.Torn())
		}
	}
}

func TestErrorOfTheFileIsNoEnd(t *testing.T) {
	broken := errors.New("broken")
	whole := raw("\x02\x00\x00{}", "\x04"+strings.Repeat("\x00", receivedHead)+strings.Repeat("x", 100_000))
	for _, at := range []int{0, 8, 10, 30, 60, 90_000} {
		r := NewReader(io.MultiReader(bytes.NewReader(whole[:at]), &faulty{broken}))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if at >= len(magic) && !errors.Is(err, broken) || errors.Is(err, io.EOF) {
			t.Errorf("after %d bytes: %v", at, err)
		}
	}
}

type faulty struct{ err error }

func (f *faulty) Read([]byte) (int, error) { return 0, f.err }

func TestPathMatchesThePattern(t *testing.T) {
	if path := Path("d", 3, 2); path != filepath.Join("d", "node-3-2.trace") {
		t.Errorf("%s", path)
	}
	if ok, err := filepath.Match(Pattern, filepath.Base(Path("", 3, 2))); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestPayloadsThatAreNotAskedForTakeNoMemory reads a message of 16 MiB.
func TestPayloadsThatAreNotAskedForTakeNoMemory(t *testing.T) {
	file := raw("\x02\x00\x00{}", "\x04"+strings.Repeat("\x00", receivedHead)+strings.Repeat("x", 16<<20))
	for payloads, enough := range map[bool]uint64{false: 1 << 20, true: 1 << 30} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := NewReader(bytes.NewReader(file))
		r.Payloads = payloads
		for _, kind := range []Kind{KindEvent, KindReceived} {
			if rec, err := r.Next(); err != nil || rec.Kind != kind || kind == KindReceived && rec.Bytes != 16<<20 {
				t.Fatalf("%+v, %v", rec.Kind, err)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > enough {
			t.Errorf("payloads %v: it took %d bytes", payloads, took)
		}
	}
}

// TestPayloadThatIsNotWrittenEndsTheRecording closes the reader of a pipe within a payload, after its record's head.
func TestPayloadThatIsNotWrittenEndsTheRecording(t *testing.T) {
	r, _ := create(t, 0)
	_ = r.file.Close()
	var out *os.File
	var err error
	if out, r.file, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer out.Close()
		if _, err := io.ReadFull(out, make([]byte, headBytes+receivedHead+1)); err != nil {
			t.Error(err)
		}
	})
	size := r.size
	r.Received("e", 1, 1, nil, make([]byte, 4<<20)) // more than a pipe holds
	reader.Wait()
	if !r.over || r.Full() || r.size != size {
		t.Errorf("over %v, full %v, %d bytes after %d", r.over, r.Full(), r.size, size)
	}
	if err := r.Close(); err == nil || !strings.HasPrefix(err.Error(), "trace file: write ") {
		t.Errorf("%v", err)
	}
}

// TestLargePayloadsAreNotCopied into the recorder's memory.
func TestLargePayloadsAreNotCopied(t *testing.T) {
	r, _ := create(t, 0)
	r.Received("e", 1, 1, nil, make([]byte, 1<<20))
	if n := cap(r.buf); n > 64<<10 {
		t.Errorf("the recorder keeps %d bytes", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
