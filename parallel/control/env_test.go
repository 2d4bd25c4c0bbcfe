package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

func lookupIn(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range environ {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func full() control.Env {
	return control.Env{
		JobID: "j1", Token: "secret", TokenFile: "/run/token",
		NodeID: 3, LocalID: 1, Nodes: 4, Topology: "star",
		Listen: "unix:///run/n3.sock", ListenFD: 4, Advertise: "tcp://h:1",
		Attach: []string{"tcp://a:1", "tcp://b:2"}, Labels: []string{"gpu", "big"},
		Dir: "/tmp/out", Attempt: 2, Incarnation: 1 << 63, ControlFD: 3,
		Main: "Play", AutoRecover: true, Retries: 2, Resume: true, Continue: true, Overwrite: true, Grace: 1500 * time.Millisecond,
		JoinTimeout: 90 * time.Second, SharedMemory: 256, PeerTimeout: 90 * time.Second, LogFormat: "json",
		Seed: -7, TLSCert: "c.pem", TLSKey: "k.pem", TLSCA: "ca.pem",
		Trace: "/tmp/trace", TraceLimit: 7, Replay: "/tmp/trace/node-3-2.trace", ReplayFast: true,
		Bus: "nats://h:4222", BusAuth: control.BusAuthJob, BusCreds: "u.creds", BusNKey: "u.nk",
	}
}

func TestEnvSurvivesEncodeAndParse(t *testing.T) {
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("%s is zero in the full Env: the test would not check it", v.Type().Field(i).Name)
		}
	}
	for _, want := range []control.Env{{}, full()} {
		got, present, err := control.Parse(lookupIn(want.Encode()))
		if err != nil || !present {
			t.Fatalf("present %v, err %v", present, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

func TestParseWithoutLauncherIsNotPresent(t *testing.T) {
	env, present, err := control.Parse(lookupIn([]string{"DITASK_SEED=5", "DITASK_NODE_ID="}))
	if present || err != nil || env.Seed != 5 {
		t.Errorf("env %+v, present %v, err %v", env, present, err)
	}
}

func TestParseReportsAllFaultsByVariableAndValue(t *testing.T) {
	_, present, err := control.Parse(lookupIn([]string{
		"DITASK_NODE_ID=x", "DITASK_NODES=-1", "DITASK_TOPOLOGY=ring", "DITASK_LISTEN_FD=2",
		"DITASK_INCARNATION=-3", "DITASK_AUTO_RECOVER=perhaps", "DITASK_GRACE=10",
		"DITASK_LOG_FORMAT=xml", "DITASK_SEED=1.5",
	}))
	if !present || err == nil {
		t.Fatalf("present %v, err %v", present, err)
	}
	want := []string{
		`DITASK_NODE_ID="x": invalid syntax`,
		`DITASK_NODES="-1": want at least 0`,
		`DITASK_TOPOLOGY="ring": want one of mesh, star, alone`,
		`DITASK_LISTEN_FD="2": want at least 3`,
		`DITASK_INCARNATION="-3": invalid syntax`,
		`DITASK_AUTO_RECOVER="perhaps": invalid syntax`,
		`DITASK_GRACE="10": want a duration such as "10s"`,
		`DITASK_LOG_FORMAT="xml": want one of text, json`,
		`DITASK_SEED="1.5": invalid syntax`,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got:\n%v", err)
	}
}

// The least value of a variable is no fault, and the one below it is.
func TestParseTakesTheLeastValues(t *testing.T) {
	for kv, fault := range map[string]string{
		"DITASK_GRACE=0s": "", "DITASK_GRACE=-1ns": "want at least 0s", "DITASK_NODES=0": "",
		"DITASK_CONTROL_FD=3": "", "DITASK_CONTROL_FD=2": "want at least 3",
		"DITASK_TRACE_LIMIT=1": "", "DITASK_TRACE_LIMIT=0": "want at least 1",
		"DITASK_SHARED_MEMORY=0": "", "DITASK_SHARED_MEMORY=-1": "want at least 0",
	} {
		_, _, err := control.Parse(lookupIn([]string{kv}))
		if (err == nil) != (fault == "") || err != nil && !strings.HasSuffix(err.Error(), fault) {
			t.Errorf("%s: %v, want %q", kv, err, fault)
		}
	}
}

func TestListsHaveNoEmptyParts(t *testing.T) {
	env, _, err := control.Parse(lookupIn([]string{"DITASK_LABELS= gpu,, big ,"}))
	if err != nil || !slices.Equal(env.Labels, []string{"gpu", "big"}) {
		t.Errorf("%q, %v", env.Labels, err)
	}
}

// TestNodesRunNoServer: a variable of an earlier version is refused, and a launcher does not pass it
// on to its nodes.
func TestNodesRunNoServer(t *testing.T) {
	environ := []string{"DITASK_NODE_ID=0", "DITASK_BUS_LISTEN=127.0.0.1:4222"}
	_, _, err := control.Parse(lookupIn(environ))
	want := `DITASK_BUS_LISTEN="127.0.0.1:4222": a node runs no NATS server: start the job with ditask --mq-type nats, which ` +
		`runs one, or start a server and set DITASK_BUS to its URL`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if left := control.Strip(environ); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestSecretReadsTheTokenFile(t *testing.T) {
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	if err := os.WriteFile(file, []byte(" s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  control.Env
		want string
		ok   bool
	}{
		{control.Env{}, "", true},
		{control.Env{Token: "t", TokenFile: empty}, "t", true},
		{control.Env{TokenFile: file}, "s3cret", true},
		{control.Env{TokenFile: empty}, "", false},
		{control.Env{TokenFile: file + "x"}, "", false},
	} {
		if got, err := c.env.Secret(); got != c.want || (err == nil) != c.ok {
			t.Errorf("%+v: %q, %v", c.env, got, err)
		}
	}
}

func TestStripLeavesOtherVariables(t *testing.T) {
	environ := append(full().Encode(), "PATH=/bin", "DITASK_OTHER=1", "odd")
	if got := control.Strip(environ); !slices.Equal(got, []string{"PATH=/bin", "DITASK_OTHER=1", "odd"}) {
		t.Error(got)
	}
}

func TestIncarnationGrows(t *testing.T) {
	now := time.Unix(10, 0)
	if got := control.NextIncarnation(0, now); got != 10e9 {
		t.Errorf("from the clock: %d", got)
	}
	if got := control.NextIncarnation(20e9, now); got != 20e9+1 {
		t.Errorf("from the one before: %d", got)
	}
	if got := control.NextIncarnation(7, time.Unix(-10, 0)); got != 8 {
		t.Errorf("before 1970: %d", got)
	}
}

func TestEnvPrintsNoSecrets(t *testing.T) {
	e := control.Env{JobID: "visible", Token: "hidden", TLSKey: "hidden", TLSCert: "visible"}
	nested := struct{ Env control.Env }{e}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{e, &e, nested} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "hidden") || !strings.Contains(text, "visible") {
				t.Errorf("%s: %s", verb, text)
			}
		}
	}
	if text := fmt.Sprint(control.Env{JobID: "visible"}); strings.Contains(text, "(secret)") {
		t.Errorf("without secrets: %s", text)
	}
	if e.Token != "hidden" {
		t.Error("printing changes it")
	}
}

func FuzzParse(f *testing.F) {
	for _, kv := range full().Encode() {
		f.Add(kv)
	}
	f.Fuzz(func(t *testing.T, kv string) {
		env, _, err := control.Parse(lookupIn([]string{kv}))
		if err != nil {
			return
		}
		again, _, err := control.Parse(lookupIn(env.Encode()))
		if err != nil || !reflect.DeepEqual(env, again) {
			t.Errorf("%q: %+v, then %+v, %v", kv, env, again, err)
		}
	})
}
