package runfolder_test

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/runfolder"
)

func TestTableOfARunThatIsWriting(t *testing.T) {
	table, err := runfolder.ParseTable([]byte("a,b,c\n1,,3e2\n2,NaN,4\n3,5"))
	if err != nil || table.Rows() != 2 || !slices.Equal(table.Column("a"), []float64{1, 2}) || !math.IsNaN(table.Column("b")[0]) {
		t.Fatalf("%+v, %v", table, err)
	}
	if v, ok := table.Last("c"); v != 4 || !ok {
		t.Errorf("last %v", v)
	}
	if _, ok := table.Last("b"); ok || table.Column("d") != nil {
		t.Error("an empty column has a value")
	}
}

// TestFaultsOfATableNameTheirPlace: file, line and column.
func TestFaultsOfATableNameTheirPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "progress.csv")
	for text, want := range map[string]string{
		"":                         ":1: the table has no header",
		"a,b":                      ":1: the table has no header", // not whole yet
		"a,b,a\n":                  `:1: column 3: the name "a" occurs twice`,
		"a,b\n1,2\n3\n":            ":3: column 2: the row has 1 columns, the header 2",
		"a,b\n1,2,3\n":             ":2: column 3: the row has 3 columns, the header 2",
		"a,train/loss\n1,2\n3,x\n": `:3: column 2 (train/loss): "x" is no number`,
		"a,b\n1,\"2\n":             ":",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runfolder.ReadTable(path); err == nil || !strings.HasPrefix(err.Error(), path+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestConfigIsFlat(t *testing.T) {
	got, err := runfolder.ParseConfig([]byte("algo: ppo # a preset\nseed: 18446744073709551615\npolicy:\n  rate: 3e-4\n  hidden: [64, " +
		"64]\nnote:\nenv: 'a: b'\n"))
	want := map[string]string{"algo": "ppo", "seed": "18446744073709551615", "policy.rate": "0.0003", "policy.hidden": "[64 64]", "note": "",
		"env": "a: b"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	for text, want := range map[string]string{"a: 1\na: 2\n": `key "a" occurs twice`, "a: [\n": "line", "just text\n": "line 1"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runfolder.ReadConfig(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%q: %v, want the file and %s", text, err, want)
		}
	}
	if err := os.WriteFile(path, make([]byte, runfolder.MaxConfigBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runfolder.ReadConfig(path); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("%v", err)
	}
}

func FuzzParseTable(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a\n\"", "a,b\n1\n", "\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := runfolder.ParseTable(text)
		if err != nil {
			if line, _, ok := strings.Cut(err.Error(), ":"); !ok || line == "" {
				t.Errorf("%v has no line", err)
			}
			return
		}
		for _, c := range table.Columns {
			if len(table.Column(c)) != table.Rows() {
				t.Errorf("column %q has %d values of %d", c, len(table.Column(c)), table.Rows())
			}
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("a: 1\nb: {c: [1, 2]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := runfolder.ParseConfig(text); err == nil && c == nil {
			t.Error("neither a config nor an error")
		}
	})
}
