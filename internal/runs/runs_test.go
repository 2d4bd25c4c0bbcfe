package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/parallel/rundir"
)

// folder writes the files of a run: names and texts in turn.
func folder(t *testing.T, dir string, files ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(files, 2) {
		if err := os.WriteFile(filepath.Join(dir, pair[0]), []byte(pair[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	mark    = `{"job":"j","started":"2026-01-02T03:04:05Z"}`
	success = `{"outcome":"success","reason":"max steps"}`
)

// world returns a folder with runs of all kinds.
func world(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	progress := "time/total_timesteps,time/time_elapsed,eval/mean_reward\n1000,10,\n2000,20,9\n3000,5,7.25\n40"
	folder(t, filepath.Join(root, "ppo", "a"), "run.json", mark, "progress.csv", progress, "outcome.json", success,
		"config.yaml", "algo: ppo\nenv: CartPole-v1\nseed: 1\nrate: 1e-3\n")
	folder(t, filepath.Join(root, "ppo", "a", "inside"), "run.json", mark) // not a run by itself
	folder(t, filepath.Join(root, "ppo", "b"), "run.json", strings.Replace(mark, "2026", "2027", 1), "progress.csv",
		"time/total_timesteps,eval/mean_reward\n5000,12\n",
		"outcome.json", `{"outcome":"failure","reason":"broken\u001b[31m"}`,
		"config.yaml", "algo: ppo\nenv: CartPole-v1\nseed: 2\nrate: 1e-3\nclip: 0.1\n")
	folder(t, filepath.Join(root, "sac", "held"), "config.yaml", "algo: sac\n", "progress.csv", "time/total_timesteps\n")
	folder(t, filepath.Join(root, "sac", "killed"), "run.json", mark)
	folder(t, filepath.Join(root, "sac", "bad"), "run.json", "{", "config.yaml", "a: [", "progress.csv", "time/total_timesteps\nx\n",
		"outcome.json", "}")
	folder(t, filepath.Join(root, "none"), "progress.csv", progress)
	lock, err := rundir.Take(filepath.Join(root, "sac", "held"), rundir.Self("j"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lock.Release)
	return root
}

func find(t *testing.T, root string) []Run {
	t.Helper()
	all, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFindListsEveryRun(t *testing.T) {
	all := find(t, world(t))
	var got []string
	for i := range all {
		r := &all[i]
		got = append(got, fmt.Sprint(filepath.ToSlash(r.Name), " ", r.Algo, " ", r.Env, " ", r.Seed, " ", r.State, " ", r.Reason, " ",
			count(r.EnvSteps), " ", score(r.Best), " ", score(r.Last), " ", span(r.Seconds), " ", len(r.Faults)))
	}
	want := []string{
		"ppo/a ppo CartPole-v1 1 finished max steps 3,000 9.0 7.2 25s 0",
		`ppo/b ppo CartPole-v1 2 stopped broken\x1b[31m 5,000 12.0 12.0 - 0`,
		"sac/bad    stopped  - - - - 4",
		"sac/held sac   running  - - - - 0",
		"sac/killed    stopped  - - - - 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i, want := range []string{"config.yaml: yaml: line", "run.json: ", `progress.csv:2: column 1 (time/total_timesteps): "x"`,
		"outcome.json: "} {
		if !strings.Contains(all[2].Faults[i], want) {
			t.Errorf("fault %q, want %s", all[2].Faults[i], want)
		}
	}
	if one := find(t, all[0].Dir); len(one) != 1 || one[0].Name != "a" {
		t.Errorf("the folder of a run itself: %+v", one)
	}
	if _, err := Find(filepath.Join(all[0].Dir, "progress.csv")); err == nil || !strings.Contains(err.Error(), "is no folder") {
		t.Errorf("%v", err)
	}
}

func TestSelectAndSort(t *testing.T) {
	all := find(t, world(t))
	names := func(all []Run) (text string) {
		for i := range all {
			text += filepath.Base(all[i].Name) + " "
		}
		return strings.TrimSpace(text)
	}
	for want, f := range map[string]Filter{
		"a b": {Algo: "ppo"}, "b bad killed": {State: Stopped}, "held": {Name: "el"}, "": {Algo: "ppo", Env: "x"}, "a b bad held killed": {},
	} {
		if got := names(Select(all, f)); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	for by, want := range map[Key]string{
		ByName: "a b bad held killed", ByBest: "b a bad held killed", BySteps: "b a bad held killed", ByStarted: "b a killed bad held",
	} {
		if err := Sort(all, by); err != nil || names(all) != want {
			t.Errorf("by %s: %s, want %s: %v", by, names(all), want, err)
		}
	}
	if err := Sort(all, "luck"); err == nil || !strings.Contains(err.Error(), `"luck": give name, started, best or steps`) {
		t.Errorf("%v", err)
	}
}

func TestCompareNamesTheKeysThatDiffer(t *testing.T) {
	all := Select(find(t, world(t)), Filter{Algo: "ppo"})
	want := []Difference{{"clip", []string{"-", "0.1"}}, {"seed", []string{"1", "2"}}}
	if diff := cmp.Diff(want, Compare(all)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if d := Compare(all[:1]); d != nil {
		t.Errorf("one run differs from itself: %v", d)
	}
}

// TestTextFitsTheTerminal, down to a width at which name and state are left.
func TestTextFitsTheTerminal(t *testing.T) {
	all := find(t, world(t))
	all[0].Name = "programs/with/a/long/path/20260102-030405-abcd"
	all[2].Faults = all[2].Faults[2:3]
	for width, want := range map[int]string{
		0:  "NAME                                            STATE     STEPS  BEST  LAST  ALGO  ENV          SEED  TIME  STARTED",
		80: "NAME                            STATE    STEPS  BEST  LAST  ALGO  ENV",
		30: "NAME              STATE",
	} {
		var b bytes.Buffer
		if err := WriteText(&b, all, width); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(b.String(), "\n")
		if !strings.HasPrefix(lines[0], want) && width == 0 {
			t.Errorf("%d: header %q, want %q", width, lines[0], want)
		}
		for _, l := range lines[:1+len(all)] {
			if width > 0 && utf8.RuneCountInString(l) > width {
				t.Errorf("%d: %q has %d letters", width, l, utf8.RuneCountInString(l))
			}
		}
		if !slices.ContainsFunc(lines[:2+len(all)], func(l string) bool {
			return strings.Contains(l,
				"030405-abcd")
		}) || !strings.Contains(lines[1+len(all)], "is no number") {
			t.Errorf("%d:\n%s", width, b.String())
		}
	}
}

func TestJSONHasWhatIsKnown(t *testing.T) {
	var b bytes.Buffer
	all := find(t, world(t))
	if err := WriteJSON(&b, all); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got) != 5 {
		t.Fatalf("%v: %s", err, b.String())
	}
	want := map[string]any{
		"dir": all[0].Dir, "name": all[0].Name, "algo": "ppo", "env": "CartPole-v1", "seed": "1", "state": "finished", "reason": "max steps",
		"env_steps": 3000.0, "best_eval": 9.0, "last_eval": 7.25, "wall_seconds": 25.0, "started": "2026-01-02T03:04:05Z",
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b.Reset()
	if err := WriteJSON(&b, nil); err != nil || b.String() != "[]\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
