package rl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTableKeepsLateColumns: earlier rows have no value in it, and the existing file is replaced.
func TestTableKeepsLateColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "progress.csv")
	for range 2 { // the second one begins again
		table, err := openTable(path, []string{stepsColumn, "a"}, -1)
		if err != nil {
			t.Fatal(err)
		}
		for _, columns := range [][]string{{stepsColumn, "a"}, {stepsColumn, "a", "b"}, {stepsColumn, "a", "b"}} {
			if err := table.write(columns, map[string]float64{stepsColumn: float64(len(columns)), "b": 7}); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.close(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := content(t, path), stepsColumn+",a,b\n2,,\n3,,7\n3,,7\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files %v: %v", entries, err)
	}
}

// TestResumedFilesGoOn: without the rows of steps that are made again, and without a line that a
// killed run has cut.
func TestResumedFilesGoOn(t *testing.T) {
	dir := t.TempDir()
	table, lines := filepath.Join(dir, "progress.csv"), filepath.Join(dir, "metrics.jsonl")
	if err := os.WriteFile(table, []byte("late,"+stepsColumn+"\n1,10\n2,20\n3,30\n4,1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lines, []byte(`{"time/total_timesteps":10,"late":1}`+"\n"+`{"time/total_timesteps":30}`+"\n"+`{"time/tot`),
		0o600); err != nil {
		t.Fatal(err)
	}
	csv, err := openTable(table, []string{stepsColumn, "a"}, 20)
	if err != nil {
		t.Fatal(err)
	}
	json, err := openLines(lines, 20)
	if err != nil {
		t.Fatal(err)
	}
	row := map[string]float64{stepsColumn: 25, "a": 5}
	for _, err := range []error{csv.write([]string{stepsColumn, "a"}, row), csv.close(), json.write(row), json.close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, want := content(t, table), "late,"+stepsColumn+",a\n1,10,\n2,20,\n,25,5\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := content(t, lines), `{"late":1,"time/total_timesteps":10}`+"\n"+`{"a":5,"time/total_timesteps":25}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestForeignTableIsRefused: the error names a file without the column that orders the rows.
func TestForeignTableIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "progress.csv")
	for text, ok := range map[string]bool{"": true, "x,y": true, "x,y\n1,2\n": false, "a,\"b\n": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := openTable(path, []string{stepsColumn}, 5)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil {
			_ = table.close()
		}
	}
	if _, err := openTable(filepath.Join(path, "below"), nil, -1); err == nil {
		t.Error("a file is accepted as a folder")
	}
}
