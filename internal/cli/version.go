package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version prints what this binary is.
func (c command) version() error {
	_, err := fmt.Fprintln(c.Stdout, versionText(debug.ReadBuildInfo()))
	return err
}

func versionText(info *debug.BuildInfo, ok bool) string {
	version, revision, dirty := "(devel)", "", ""
	if ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				revision = " " + s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = " (changed)"
			}
		}
	}
	return fmt.Sprintf("ditask %s%s%s %s %s/%s", version, revision, dirty, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
