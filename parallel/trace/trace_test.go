package trace_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ditask/ditask/parallel/trace"
)

var head = trace.Head{Job: "j", Node: 2, Nodes: 3, Labels: []string{"gpu"}, Incarnation: 1 << 60, Seed: -4, Args: []string{"-x"}}

var ping = trace.Event{Name: "ping", Delivery: "reliable", Fingerprint: 1 << 63, Schema: "int64"}

// record writes a file of every kind of record.
func record(t *testing.T, limit int64, messages int) []byte {
	t.Helper()
	path := trace.Path(filepath.Join(t.TempDir(), "new"), 2, 1)
	r, err := trace.Create(path, head, limit)
	if err != nil {
		t.Fatal(err)
	}
	r.Declare(ping)
	r.Peer(trace.Peer{Node: 1, Change: trace.PeerJoined, Incarnation: 7})
	r.Ready()
	for i := range messages {
		r.Sent("ping", 1, uint64(i+1), 5)
		r.Received("ping", 1, uint64(i+1), []byte("head"), bytes.Repeat([]byte{byte(i)}, 100_000*(i%2)+3))
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if limit > 0 && (int64(len(b)) > limit || !r.Full()) {
		t.Errorf("%d bytes, the limit is %d", len(b), limit)
	}
	return b
}

func read(t *testing.T, b []byte, payloads bool) (*trace.Reader, []trace.Record) {
	t.Helper()
	r := trace.NewReader(bytes.NewReader(b))
	r.Payloads = payloads
	var out []trace.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r, out
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Time.IsZero() {
			t.Errorf("no time: %+v", rec)
		}
		out = append(out, rec)
	}
}

func TestRecordsAreReadBack(t *testing.T) {
	b := record(t, 0, 2)
	for _, payloads := range []bool{true, false} {
		want := []trace.Record{
			{Kind: trace.KindHead, Head: &head},
			{Kind: trace.KindEvent, Event: &ping},
			{Kind: trace.KindPeer, Peer: &trace.Peer{Node: 1, Change: trace.PeerJoined, Incarnation: 7}},
			{Kind: trace.KindReady},
			{Kind: trace.KindSent, Event: &ping, Node: 1, Version: 1, Bytes: 5},
			{Kind: trace.KindReceived, Event: &ping, Node: 1, Version: 1, Bytes: 3, Header: []byte("head"), Payload: make([]byte, 3)},
			{Kind: trace.KindSent, Event: &ping, Node: 1, Version: 2, Bytes: 5},
			{Kind: trace.KindReceived, Event: &ping, Node: 1, Version: 2, Bytes: 100_003, Header: []byte("head"),
				Payload: bytes.Repeat([]byte{1}, 100_003)},
			{Kind: trace.KindEnd, End: &trace.End{Reason: trace.EndClosed}},
		}
		if !payloads {
			for i := range want {
				want[i].Header, want[i].Payload = nil, nil
			}
		}
		r, got := read(t, b, payloads)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(trace.Record{}, "Time")); diff != "" || r.Torn() {
			t.Errorf("payloads %v, torn %v:\n%s", payloads, r.Torn(), diff)
		}
	}
}

func TestAFullFileHasALastRecord(t *testing.T) {
	_, got := read(t, record(t, 150_000, 5), false)
	last := got[len(got)-1]
	if last.End == nil || last.End.Reason != trace.EndLimit {
		t.Errorf("the last record: %+v", last)
	}
	messages := 0
	for _, r := range got {
		if r.Kind == trace.KindReceived {
			messages++
		}
	}
	if messages != 3 { // 3, 100003 and 3 bytes
		t.Errorf("%d messages fit", messages)
	}
}

// TestATornFileIsReadUpToThere cuts a file at every byte, as a killed writer
// may.
func TestATornFileIsReadUpToThere(t *testing.T) {
	b := record(t, 0, 1)
	_, all := read(t, b, true)
	whole := 0
	for n := 8; n < len(b); n++ {
		r, got := read(t, b[:n], n%2 == 0)
		if len(got) > len(all) {
			t.Fatal("more records than were written")
		}
		if !r.Torn() {
			whole++
		}
	}
	if whole != len(all) {
		t.Errorf("%d places between %d records", whole, len(all))
	}
}

func TestAFolderThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Create(trace.Path(file, 0, 0), head, 0); err == nil {
		t.Error("no error")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("ditrace1"))
	f.Add([]byte("ditrace1\x0b\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte(fmt.Sprintf("ditrace1\xff\xff\xff\x3f\x04%032d", 0)))
	dir := f.TempDir()
	r, err := trace.Create(trace.Path(dir, 0, 0), head, 0)
	if err != nil {
		f.Fatal(err)
	}
	r.Declare(ping)
	r.Received("ping", 1, 1, nil, []byte("x"))
	_ = r.Close()
	b, err := os.ReadFile(trace.Path(dir, 0, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := trace.NewReader(bytes.NewReader(b))
		r.Payloads = len(b)%2 == 0
		for {
			rec, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, trace.ErrFormat) {
					t.Fatal(err)
				}
				return
			}
			if rec.Bytes > len(b) && rec.Kind == trace.KindReceived || len(rec.Payload) > len(b) {
				t.Fatalf("%d bytes of %d", rec.Bytes, len(b))
			}
		}
	})
}
