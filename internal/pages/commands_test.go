package pages

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/cli"
)

var block = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")

// trainings returns the commands "ditask train" in the blocks of a page, without comments, as arguments behind ditask.
func trainings(page string) [][]string {
	var out [][]string
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(m[1], "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			line = strings.TrimPrefix(strings.TrimPrefix(line, "srun -n 4 "), "bin/")
			line = strings.TrimPrefix(strings.TrimPrefix(line, "./"), "go run ./")
			if rest, ok := strings.CutPrefix(line, "ditask train "); ok && !strings.ContainsAny(rest, "|>;") {
				out = append(out, append([]string{"train"}, words(rest)...))
			}
		}
	}
	return out
}

// words divides a command at blanks that are not quoted, and removes the quotes.
func words(line string) []string {
	var out []string
	var quote rune
	word, open := "", false
	for _, r := range line {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, open = r, true
		case r == quote:
			quote = 0
		case quote == 0 && r == ' ':
			if open {
				out = append(out, word)
			}
			word, open = "", false
		default:
			word, open = word+string(r), true
		}
	}
	if open {
		out = append(out, word)
	}
	return out
}

// TestEveryTrainingIsAccepted by ditask, with --dry-run. Commands with a word in capitals stand for others.
func TestEveryTrainingIsAccepted(t *testing.T) {
	place, count := regexp.MustCompile(`^[A-Z]{3,}$|runs/|\.yaml$`), 0
	tree := os.DirFS("../..")
	err := fs.WalkDir(tree, "docs", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		page, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, args := range trainings(string(page)) {
			if slices.ContainsFunc(args, place.MatchString) {
				continue
			}
			count++
			var out bytes.Buffer
			if code := cli.Main(append(args, "--dry-run"), &out, &out); code != 0 {
				t.Errorf("%s: ditask %s: exit code %d\n%s", name, strings.Join(args, " "), code, out.String())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 20 {
		t.Errorf("%d commands were found, want at least 20", count)
	}
}

func TestTrainingsAreFound(t *testing.T) {
	page := "```\n$ bin/ditask train ppo --set env_args='{\"a\": 1}' -n 4   # text\n" +
		"ditask runs\nditask train \\\n  dqn\n```\nditask train no\n"
	got := trainings(page)
	if len(got) != 2 || strings.Join(got[0], "|") != "train|ppo|--set|env_args={\"a\": 1}|-n|4" || strings.Join(got[1], "|") != "train|dqn" {
		t.Errorf("%q", got)
	}
}
