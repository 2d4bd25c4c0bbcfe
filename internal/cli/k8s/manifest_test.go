package k8s_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/conf"
	urfave "github.com/urfave/cli/v2"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/k8s"
	"github.com/ditask/ditask/internal/cli/quote"
	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

// manifest returns the output of ditask k8s manifest. The flags are those before the arguments of
// the program.
func manifest(t *testing.T, program []string, flags ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	app := &urfave.App{
		Commands: []*urfave.Command{k8s.Command(&call.Call{Stdout: &out, Stderr: io.Discard, Args: program})},
		Writer:   io.Discard, ErrWriter: io.Discard, ExitErrHandler: func(*urfave.Context, error) {},
	}
	err := app.Run(append([]string{"ditask", "k8s", "manifest", "--name", "dqn", "--image", "i"}, flags...))
	return out.String(), err
}

// objects returns the objects of a text in YAML, by kind and name.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.SetStrict(true) // no key comes twice
	for {
		var o map[string]any
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if o != nil {
			all[at[string](t, o, "kind")+"/"+at[string](t, o, "metadata", "name")] = o
		}
	}
}

// at returns the value of an object at a path of keys and indices.
func at[T any](t *testing.T, o any, path ...any) T {
	t.Helper()
	for _, step := range path {
		switch in := o.(type) {
		case map[string]any:
			o = in[step.(string)]
		case map[any]any:
			o = in[step]
		case []any:
			o = in[step.(int)]
		}
	}
	v, ok := o.(T)
	if !ok {
		t.Fatalf("%v: %v is a %T", path, o, o)
	}
	return v
}

// rendered returns the output of Helm for a chart, by the package of templates that Helm uses.
func rendered(t *testing.T, dir string) string {
	t.Helper()
	var values map[string]any
	b, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err := errors.Join(err, yaml.Unmarshal(b, &values)); err != nil {
		t.Fatal(err)
	}
	if r, ok := values["resources"].(map[any]any); !ok || len(r) > 0 {
		t.Fatalf("resources: %v", values["resources"]) // text/template knows only the JSON of none
	}
	files, err := filepath.Glob(filepath.Join(dir, "templates", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := template.New(file).Option("missingkey=error").Funcs(template.FuncMap{
			"toJson": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
			"int":    func(v any) int { return v.(int) },
			"sub":    func(a, b int) int { return a - b },
		}).Parse(string(b))
		if err != nil {
			t.Fatalf("%v in:\n%s", err, b)
		}
		if err := parsed.Execute(&out, map[string]any{"Values": values, "Release": map[string]any{"Namespace": "there"}}); err != nil {
			t.Fatal(err)
		}
		out.WriteString("\n---\n")
	}
	return out.String()
}

// FuzzManifest gives text from outside to flags: it is one argument of the pods, in a
// manifest and in what Helm makes of a chart, and changes nothing else.
func FuzzManifest(f *testing.F) {
	for _, s := range []string{
		"a", "{{ .Values.image }}", "{{", "}}", `"`, "a\"\n  evil: x\n#", "\n---\nkind: Pod", "$(DITASK_TOKEN)", "$$(DITASK_TOKEN)", "$", "\\",
		"\ue000 .Values.image \ue001",
		"\u2028", "\x7f", "\u0085", "%v", `\u0000`, "{{- end }}", "'", "#", ": ", "yes",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) || text == "" {
			return // not a valid argument of a process, or not a valid text in YAML
		}
		args := []string{"--pods", "2", "--bus", "nats", "--labels=" + text, "--dir=" + text}
		out, err := manifest(t, []string{text}, args...)
		if err != nil {
			t.Fatal(err)
		}
		plain := objects(t, out)
		if len(plain) != 4 {
			t.Fatalf("%d objects in:\n%s", len(plain), out)
		}
		escaped := quote.Arguments([]string{text})[0]
		want := []any{"--package", "/program", "--platform", "kubernetes", "--dir", escaped, "--resume=false", "--labels", escaped, "--", escaped}
		container := at[any](t, plain["Job/dqn"], "spec", "template", "spec", "containers", 0)
		if got := at[[]any](t, container, "args"); !slices.Equal(got, want) {
			t.Errorf("arguments %q, want %q", got, want)
		}
		dir := filepath.Join(t.TempDir(), "chart")
		if _, err := manifest(t, []string{text}, append(args, "--helm", dir)...); err != nil {
			t.Fatal(err)
		}
		if chart := objects(t, rendered(t, dir)); !reflect.DeepEqual(plain, chart) {
			t.Errorf("the chart is not the manifest:\n%v\n%v", plain, chart)
		}
	})
}

// The job's token is sent to no server: the password of one is another Secret, and in no
// argument of any process.
func TestServerHasItsOwnPassword(t *testing.T) {
	const password = "0123456789abcdef"
	for _, kind := range []string{"nats", "redis"} {
		out, err := manifest(t, nil, "--bus", kind)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, out)
		pod := at[any](t, all["Deployment/dqn-bus"], "spec", "template", "spec")
		if text, _ := yaml.Marshal(pod); bytes.Contains(text, []byte("oken\n")) || bytes.Contains(text, []byte("TOKEN")) {
			t.Errorf("the server has the job's token:\n%s", text)
		}
		container := at[any](t, pod, "containers", 0)
		argv, written := start(t, at[[]any](t, container, "command"), password)
		if strings.Contains(argv, password) || !strings.HasPrefix(argv, kind+"-server ") {
			t.Errorf("the server's arguments: %s", argv)
		}
		switch kind {
		case "nats":
			config, err := conf.Parse(written)
			if err != nil || at[string](t, config, "authorization", "token") != password {
				t.Errorf("%v in:\n%s", err, written)
			}
		case "redis":
			if want := "port 6379\nrequirepass " + password + "\nsave \"\"\nappendonly no\n"; written != want {
				t.Errorf("%q, want %q", written, want)
			}
		}
		node, _ := yaml.Marshal(at[any](t, all["Job/dqn"], "spec", "template", "spec", "containers", 0, "args"))
		if strings.Contains(string(node), "PASSWORD") || strings.Contains(string(node), "://") {
			t.Errorf("a password among the arguments of the nodes:\n%s", node)
		}
	}
}

// start runs the command of a server, in whose place a program writes its arguments
// down. The result has these, and the configuration.
func start(t *testing.T, command []any, password string) (argv, config string) {
	t.Helper()
	dir, watch := t.TempDir(), leak.Check(t)
	for _, name := range []string{"nats-server", "redis-server"} {
		stub := "#!/bin/sh\n[ -z \"${BUS_PASSWORD-}\" ] || exit 3\nprintf '%s ' \"${0##*/}\" \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(stub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(password string) ([]byte, error) {
		cmd := exec.Command(command[0].(string), "-c", strings.ReplaceAll(command[2].(string), "/conf/", dir+"/"))
		cmd.Env = append(watch.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "BUS_PASSWORD="+password)
		return cmd.Output()
	}
	for _, bad := range []string{"", "a b", `"`, "a\n", "a$x"} {
		if out, err := run(bad); err == nil {
			t.Errorf("password %q is accepted: %s", bad, out)
		}
	}
	out, err := run(password)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "bus.conf"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration: %v, %v", info, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "bus.conf"))
	if err != nil {
		t.Fatal(err)
	}
	return string(out), string(b)
}

// A name is refused if Kubernetes would refuse it, or if a shell or a template would read more than a name.
func TestNamesAreNames(t *testing.T) {
	for _, bad := range [][]string{
		{"--token-secret", "a\nkind: Pod"}, {"--token-secret", "a;id"}, {"--token-secret", "A"}, {"--token-secret", "$(id)"},
		{"--token-secret", strings.Repeat("a", 254)}, {"--env-secret", "a b"}, {"--volume", "a/b"}, {"--volume", "-a"},
		{"--bus", "nats", "--bus-image", "a b"}, {"--gpu-resource", "a b"}, {"--gpu-resource", "a/b/c"},
		{"--node-selector", "a b=c"}, {"--node-selector", "a=b c"}, {"--node-selector", "=c"}, {"--node-selector", "x/a\n=c"},
		{"--node-selector", "a=" + strings.Repeat("b", 64)}, {"--tolerate", "a b"}, {"--tolerate", "a=b\nc"}, {"--namespace", "a\nb"},
		{"--bus", "nats", "--token-secret", "dqn-bus"}, {"--bus-image", "i"},
		{"--kind", "dijob", "--bus", "nats", "--token-secret", "own"}, {"--token-file", "f"},
	} {
		if out, err := manifest(t, nil, bad...); err == nil || !errors.As(err, new(call.UsageError)) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\n%s", bad, err, out)
		}
	}
	if _, err := manifest(t, nil, "--image", "a\nb"); err == nil {
		t.Error("an image of two lines is accepted")
	}
	for _, good := range [][]string{
		{"--token-secret", "own.secret-1"}, {"--node-selector", "example.com/a_b.c=", "--node-selector", "disk=ssd"},
		{"--tolerate", "example.com/x=y:NoSchedule"}, {"--image", "[::1]:5000/a/b_c:1@sha256:0123"}, {"--gpu-resource",
			"amd.com/gpu"}, {"--bus", "redis", "--bus-image", "r/redis@sha256:01"},
	} {
		if _, err := manifest(t, nil, good...); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestSecretsAreNotWritten(t *testing.T) {
	const say = ": a manifest must not contain a secret, and pods do not have the variables of this shell: write each value to a file, " +
		"kubectl create secret generic "
	for name, c := range map[string]struct {
		env, flags []string
		want       string // empty: it is accepted
	}{
		"flags": {nil, []string{"--redis-url", "redis://u:hunter@h", "--tls-key", "-----BEGIN hunter", "--namespace", "rl"},
			"--tls-key, --redis-url" + say + "dqn-env --namespace rl --from-file=DITASK_TLS_KEY=FILE --from-file=DITASK_REDIS_URL=FILE, " +
				"and give --env-secret dqn-env instead"},
		"a token": {nil, []string{"--nats-url", "nats://hunter@h:1", "--env-secret", "mine"},
			"--nats-url" + say + "mine --from-file=DITASK_NATS_URL=FILE, and give --env-secret mine instead"},
		"variables": {[]string{"DITASK_REDIS_URL=redis://:hunter@h", "DITASK_TLS_CA=ca.pem"}, nil,
			"DITASK_TLS_CA, DITASK_REDIS_URL" + say + "dqn-env --from-file=DITASK_TLS_CA=FILE --from-file=DITASK_REDIS_URL=FILE, " +
				"and give --env-secret dqn-env instead; or unset the variables"},
		"variables that the Secret has": {
			[]string{"DITASK_REDIS_URL=redis://:hunter@h", "DITASK_TOKEN=hunter", "DITASK_TLS_KEY=-----BEGIN hunter"}, []string{"--env-secret",
				"mine"}, "",
		},
		"a variable that counts not": {[]string{"DITASK_REDIS_URL=redis://:hunter@h"}, []string{"--bus", "nats"}, ""},
		"another transport":          {[]string{"DITASK_REDIS_URL=redis://:hunter@h"}, []string{"--mq-type", "mesh"}, ""},
		"no secrets":                 {nil, []string{"--redis-url", "redis://h", "--tls-key", "/k", "--tls-cert", "/c", "--tls-ca", "/ca"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kv := range c.env {
				name, value, _ := strings.Cut(kv, "=")
				t.Setenv(name, value)
			}
			out, err := manifest(t, nil, c.flags...)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if said != c.want || strings.Contains(out, "hunter") {
				t.Errorf("got:\n%s\nwant:\n%s\n%s", said, c.want, out)
			}
		})
	}
}

// The images of servers are named by their digests: they cannot change.
func TestImagesOfServersCannotChange(t *testing.T) {
	for _, kind := range []string{"nats", "redis"} {
		out, err := manifest(t, nil, "--bus", kind)
		if err != nil || !regexp.MustCompile(`image: "`+kind+`:[0-9.]+-alpine@sha256:[0-9a-f]{64}"`).MatchString(out) {
			t.Errorf("the server of %s has no digest: %v\n%s", kind, err, out)
		}
	}
}
