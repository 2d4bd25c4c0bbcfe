package kubetest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// asPackage makes the test's own program a package of three tests that need a cluster.
const asPackage = "KUBETEST_AS_PACKAGE"

var cluster *Cluster

func TestMain(m *testing.M) {
	if os.Getenv(asPackage) == "" {
		os.Exit(m.Run())
	}
	Main(m, func(c *Cluster) { cluster = c })
}

// TestNeed is the package of TestTestsWithoutAControlPlane.
func TestNeed(t *testing.T) {
	if cluster == nil {
		return
	}
	for range 3 {
		t.Run("", func(t *testing.T) { NewWorld(t, cluster) })
	}
}

func TestTestsWithoutAControlPlaneAreSkippedInOneLineAndFailOnCI(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ci, want := range map[string]string{
		"":     "kubetest: 3 tests were skipped: there is no control plane: run make control-plane, and set KUBEBUILDER_ASSETS as it says\n",
		"true": "there is no control plane: run make control-plane",
	} {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestNeed$")
		cmd.Env = append(os.Environ(), asPackage+"=1", "KUBEBUILDER_ASSETS=", "CI="+ci)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (ci == "") || !strings.Contains(string(out), want) ||
			strings.Contains(string(out), "were skipped") != (ci == "") {
			t.Errorf("CI=%q: %v\n%s", ci, err, out)
		}
		if n := strings.Count(string(out), "--- FAIL: TestNeed/"); ci != "" && n != 3 {
			t.Errorf("CI=%q: %d tests failed\n%s", ci, n, out)
		}
	}
}

// slowServer is an API server that takes definitions without conditions, and shows their kinds late: by group
// and version when it is asked for the third time, and in the list of all when it is asked again three times.
type slowServer struct{ alone, all atomic.Int32 }

// group returns a group of an API with one resource, as a server describes it.
func group(name, plural, kind string) (group, resources map[string]any) {
	version := map[string]any{"groupVersion": name + "/v1", "version": "v1"}
	resource := map[string]any{"name": plural, "kind": kind, "verbs": []string{"create"}}
	return map[string]any{"name": name, "versions": []any{version}, "preferredVersion": version},
		map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name + "/v1", "resources": []any{resource}}
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	definitions, ofDefinitions := group("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
	things, ofThings := group("example.com", "things", "Thing")
	code, answer := http.StatusOK, map[string]any{}
	switch {
	case r.Method == http.MethodPost:
		code = http.StatusCreated
		_ = json.NewDecoder(r.Body).Decode(&answer) // what the client has encoded
		answer["status"] = map[string]any{"conditions": nil}
	case r.URL.Path == "/api":
		answer = map[string]any{"kind": "APIVersions", "versions": []any{}}
	case r.URL.Path == "/apis":
		groups := []any{definitions}
		if s.alone.Load() >= 3 && s.all.Add(1) >= 3 {
			groups = append(groups, things)
		}
		answer = map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	case r.URL.Path == "/apis/apiextensions.k8s.io/v1":
		answer = ofDefinitions
	case r.URL.Path == "/apis/example.com/v1" && s.alone.Add(1) >= 3:
		answer = ofThings
	default:
		code, answer = http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"reason": "NotFound", "code": 404}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) //nolint:errchkjson // strings, numbers and slices of them; the client may have gone
}

func TestDefinitionIsInstalledWhenDiscoveryListsItsKind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "definition.json")
	const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"things.example.com"},
		"spec":{"group":"example.com","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true}]}}`
	if err := os.WriteFile(file, []byte(definition), 0o600); err != nil {
		t.Fatal(err)
	}
	slow := &slowServer{}
	server := httptest.NewServer(slow)
	defer server.Close()
	definitions, err := define(&rest.Config{Host: server.URL}, file)
	if err != nil || len(definitions) != 1 || slow.all.Load() != 3 {
		t.Errorf("%d definitions after %d looks at the list: %v", len(definitions), slow.all.Load(), err)
	}
	for name, text := range map[string]string{"missing.yaml": "", "empty.yaml": "# nothing\n"} {
		path := filepath.Join(t.TempDir(), name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := define(&rest.Config{Host: server.URL}, path); err == nil {
			t.Errorf("no error for %s", name)
		}
	}
}
