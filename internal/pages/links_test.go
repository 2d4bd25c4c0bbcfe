package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	fence   = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	code    = regexp.MustCompile("`[^`\n]*`")
	inline  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	defined = regexp.MustCompile(`(?m)^\[[^\]]+\]:\s+(\S+)`)
	heading = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// anchors returns the names that a reader on GitHub finds the headings of a page under.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := inline.ReplaceAllString(m[1], "")
		name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		again := name
		for n := 1; slices.Contains(out, again); n++ {
			again = fmt.Sprintf("%s-%d", name, n)
		}
		out = append(out, again)
	}
	return out
}

// links returns the targets of a page's links, without those in code.
func links(page string) []string {
	text := code.ReplaceAllString(fence.ReplaceAllString(page, ""), "``")
	var out []string
	for _, m := range slices.Concat(inline.FindAllStringSubmatch(text, -1), defined.FindAllStringSubmatch(text, -1)) {
		out = append(out, m[1])
	}
	return out
}

// broken lists the relative links that lead nowhere, and how many links there are.
func broken(tree fs.FS) (faults []string, count int, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			if d != nil && d.IsDir() && name != "." && (path.Base(name)[0] == '.' || path.Base(name) == "testdata" || path.Base(name) == "runs") {
				return fs.SkipDir
			}
			return err
		}
		page, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, link := range links(string(page)) {
			if strings.Contains(link, ":") {
				continue // to another site
			}
			count++
			if fault := follow(tree, name, link); fault != "" {
				faults = append(faults, fmt.Sprintf("%s: link %s: %s", name, link, fault))
			}
		}
		return nil
	})
	return faults, count, err
}

// follow returns the faults of a relative link.
func follow(tree fs.FS, page, link string) string {
	file, anchor, _ := strings.Cut(link, "#")
	target := path.Join(path.Dir(page), file)
	if file == "" {
		target = page
	}
	if _, err := fs.Stat(tree, target); err != nil {
		return "there is no " + target
	}
	if anchor == "" || path.Ext(target) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(tree, target)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return fmt.Sprintf("%s has no heading #%s", target, anchor)
	}
	return ""
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	faults, count, err := broken(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
	if count < 100 {
		t.Errorf("%d relative links were found, want at least 100: are the pages there?", count)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	page := "# A *b*, `c`!\n## Same\n## Same\n[x](b.md) [x](#a-b-c) [x](#same-1) [x](sub) [x](https://example.com/x)\n\n[r]: gone.md\n" +
		"[x](b.md#no) [x](no.md) `[x](code.md)`\n```\n[x](fence.md)\n# not a heading\n```\n[x](#not-a-heading)\n"
	tree := fstest.MapFS{"a.md": {Data: []byte(page)}, "b.md": {Data: []byte("# B\n")}, "sub/c.md": {Data: []byte("[x](../b.md#b)\n")}}
	faults, count, err := broken(tree)
	want := []string{
		"a.md: link b.md#no: b.md has no heading #no", "a.md: link no.md: there is no no.md",
		"a.md: link #not-a-heading: a.md has no heading #not-a-heading", "a.md: link gone.md: there is no gone.md",
	}
	if err != nil || !slices.Equal(faults, want) || count != 9 {
		t.Errorf("%q, %d links, %v", faults, count, err)
	}
}

// TestTheReadmeHasEveryPage of docs in its list.
func TestTheReadmeHasEveryPage(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if (e.IsDir() || path.Ext(e.Name()) == ".md") && !strings.Contains(string(readme), "\n- [docs/"+e.Name()+"](docs/"+e.Name()+")") {
			t.Errorf("README.md does not list docs/%s", e.Name())
		}
	}
}
