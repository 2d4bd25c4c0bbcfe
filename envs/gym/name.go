package gym

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/ditask/ditask/internal/printable"
)

// prefix begins the names of environments that gymnasium.make makes.
const prefix = "gym:"

// target is a parsed name.
type target struct {
	module, id string // of gymnasium
	path, attr string // of a file
}

var (
	moduleName = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)
	idName     = regexp.MustCompile(`^[\w.+-]+(/[\w.+-]+)?$`)
)

// Matches reports whether name has one of the forms that [Open] takes, "gym:..." or
// "....py:...". The environment itself may be missing.
func Matches(name string) bool {
	_, _, isFile := cutFile(name)
	return strings.HasPrefix(name, prefix) || isFile
}

// cutFile splits the name of a function in a file.
func cutFile(name string) (path, attr string, ok bool) {
	at := strings.LastIndex(name, ".py:")
	if at < 0 {
		return "", "", strings.HasSuffix(name, ".py") && !strings.HasPrefix(name, prefix)
	}
	return name[:at+3], name[at+4:], true
}

// parseName parses the name of an environment.
func parseName(name string) (t target, err error) {
	shown := printable.Cut(name, 80)
	if rest, ok := strings.CutPrefix(name, prefix); ok {
		t.id = rest
		if at := strings.LastIndexByte(rest, ':'); at >= 0 {
			t.module, t.id = rest[:at], rest[at+1:]
		}
		if !idName.MatchString(t.id) || t.module != "" && !moduleName.MatchString(t.module) || strings.HasPrefix(rest, ":") {
			return t, fmt.Errorf("environment %q: want gym:ID, such as gym:CartPole-v1, or gym:MODULE:ID", shown)
		}
		return t, nil
	}
	var ok bool
	if t.path, t.attr, ok = cutFile(name); !ok {
		return t, fmt.Errorf("environment %q: want gym:ID, gym:MODULE:ID or FILE.py:FUNCTION", shown)
	}
	if !moduleName.MatchString(t.attr) {
		return t, fmt.Errorf("environment %q: want FILE.py:FUNCTION, the name of a function or class in the file, such as make_env", shown)
	}
	info, err := os.Stat(t.path)
	if err != nil {
		return t, fmt.Errorf("environment %q: %w", shown, err)
	}
	if info.IsDir() {
		return t, fmt.Errorf("environment %q: %s is a folder", shown, printable.Text(t.path))
	}
	return t, nil
}
