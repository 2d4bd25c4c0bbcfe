package k8s

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/quote"
	"github.com/ditask/ditask/internal/safefile"
)

// kustomization is the text of kustomization.yaml, without its resources.
const kustomization = `# Written by ditask k8s manifest --kustomize: kubectl apply -k .
# Not for namePrefix or nameSuffix: the nodes find each other by the names in DI_NODES.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
`

// writeKustomization writes a folder for kubectl apply -k.
func (c command) writeKustomization(m *manifest, dir string) error {
	parts, err := m.parts()
	if err != nil {
		return err
	}
	text := kustomization + "resources:\n"
	files := map[string]string{}
	for i, p := range parts {
		if i == 0 {
			continue
		}
		name := p.name + ".yaml"
		files[name] = parts[0].text + p.text
		text += "- " + name + "\n"
	}
	files["kustomization.yaml"] = text
	return c.writeFolder("--kustomize", dir, files)
}

// mark encloses the expressions of a chart in a text, until it is written. No flag
// contains it: the arguments and variables of a process have no zero byte.
const mark = "\x00"

// expression returns a text that a chart computes.
func expression(e string) string { return mark + e + mark }

// scalar writes a text of a manifest, or of a chart, as a scalar of YAML.
func scalar(s string, chart bool) string {
	pieces := strings.Split(s, mark)
	switch {
	case !chart:
		return quote.YAML(s)
	case len(pieces) == 1:
		return quote.Helm(quote.YAML(s))
	}
	format, args := "", ""
	for i, piece := range pieces {
		if i%2 == 0 {
			format += strings.ReplaceAll(piece, "%", "%%")
			continue
		}
		format, args = format+"%v", args+" ("+piece+")"
	}
	return "{{ printf " + quote.HelmString(format) + args + " | toJson }}"
}

// output returns a number or a text of a manifest for a template of a chart, outside of
// YAML's quotes. Names and numbers need no quotes.
func output(s string) string {
	pieces := strings.Split(s, mark)
	for i := 1; i < len(pieces); i += 2 {
		pieces[i] = "{{ " + pieces[i] + " }}"
	}
	return strings.Join(pieces, "")
}

// writeChart writes a Helm chart. Its values are the settings that are likely to change.
func (c command) writeChart(ctx *urfave.Context, dir string) error {
	m, err := c.manifestOf(ctx, true)
	if err != nil {
		return err
	}
	said, err := c.manifestOf(ctx, false)
	if err != nil {
		return err
	}
	parts, err := m.parts()
	if err != nil {
		return err
	}
	values, err := said.values(len(ctx.StringSlice("task")) > 0)
	if err != nil {
		return err
	}
	files := map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: " + quote.YAML(said.Name) + "\ndescription: A job of ditask.\ntype: application\nversion: 0.1.0\n",
		"values.yaml": "# Written by ditask k8s manifest --helm: helm install " + said.Name + " . --set image=OTHER\n" + values,
	}
	for _, p := range parts[1:] {
		files[filepath.Join("templates", p.name+".yaml")] = "# Written by ditask k8s manifest --helm.\n" + p.text
	}
	if notes := m.notes(); notes != "" {
		files[filepath.Join("templates", "NOTES.txt")] = notes
	}
	return c.writeFolder("--helm", dir, files)
}

// notes returns the text that Helm prints after it has installed a chart: the Secrets that
// the pods wait for.
func (m *manifest) notes() string {
	text := ""
	for _, s := range m.Needs() {
		s.Name, s.namespace = output(s.Name), cmp.Or(output(m.Namespace), "{{ .Release.Namespace }}")
		text += "The pods wait for a " + s.Key + ":\n  " + s.Command() + "\n"
	}
	return text
}

// values returns the values of a chart, one on each line.
func (m *manifest) values(tasks bool) (string, error) {
	var b strings.Builder
	line := func(name string, value any) error {
		text, err := json.Marshal(value)
		_, _ = fmt.Fprintf(&b, "%s: %s\n", name, text) // to memory
		return err
	}
	err := errors.Join(line("name", m.Name), line("image", m.Image))
	if m.Namespace != "" {
		err = errors.Join(err, line("namespace", m.Namespace))
	}
	for _, limit := range []struct{ name, value string }{{"minReplicas", m.Min}, {"maxReplicas", m.Max}} {
		if limit.value != "" {
			err = errors.Join(err, line(limit.name, json.Number(limit.value)))
		}
	}
	if tasks {
		b.WriteString("tasks:\n")
	}
	for _, g := range m.Groups {
		if tasks {
			err = errors.Join(err, line("  "+g.Task, map[string]any{"replicas": json.Number(g.Replicas), "resources": g.resources()}))
		} else {
			err = errors.Join(err, line("pods", json.Number(g.Replicas)), line("resources", g.resources()))
		}
	}
	return b.String(), err
}

// resources returns the requests and limits of each pod of a group.
func (g group) resources() map[string]map[string]any {
	all := map[string]map[string]any{}
	put := func(what, name string, value any) {
		if all[what] == nil {
			all[what] = map[string]any{}
		}
		all[what][name] = value
	}
	if g.CPU != "" {
		put("requests", "cpu", g.CPU)
	}
	if g.Memory != "" {
		put("requests", "memory", g.Memory)
		put("limits", "memory", g.Memory)
	}
	if g.GPUs > 0 {
		put("limits", g.GPUResource, g.GPUs)
	}
	return all
}

// writeFolder writes files into a new or empty folder.
func (c command) writeFolder(flag, dir string, files map[string]string) error {
	switch there, err := os.ReadDir(dir); {
	case err == nil && len(there) > 0:
		return call.Usage("%s %s: is not empty: give a new folder", flag, dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return call.Usage("%s: %w", flag, err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := safefile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if err := safefile.Write(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}
