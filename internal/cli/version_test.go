package cli

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersionNamesTheSourceOfTheBinary(t *testing.T) {
	system := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	built := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}
	for _, c := range []struct {
		info       *debug.BuildInfo
		ok         bool
		text, json string
	}{
		{nil, false, "ditask (devel)", `{"version":"(devel)","modified":false`},
		{built(""), true, "ditask (devel)", `{"version":"(devel)","modified":false`},
		{built("v1.2.3", revision), true, "ditask v1.2.3 0123456789ab", `{"version":"v1.2.3","revision":"0123456789abcdef","modified":false`},
		{built("v1.2.3", revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), true, "ditask v1.2.3 0123456789ab (changed)",
			`{"version":"v1.2.3","revision":"0123456789abcdef","modified":true`},
		{built("v1.2.3", debug.BuildSetting{Key: "vcs.modified", Value: "false"}), true, "ditask v1.2.3", `{"version":"v1.2.3","modified":false`},
	} {
		b := binaryOf(c.info, c.ok)
		if got := b.String(); got != c.text+system {
			t.Errorf("got %q, want %q", got, c.text+system)
		}
		want := c.json + `,"go":"` + runtime.Version() + `","os":"` + runtime.GOOS + `","arch":"` + runtime.GOARCH + `"}`
		if got, err := json.Marshal(b); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
