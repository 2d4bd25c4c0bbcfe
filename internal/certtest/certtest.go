// Package certtest writes a job's authority and one certificate for tests.
//
//	files := certtest.New(t) // files.Cert, files.Key, files.CA are PEM files
package certtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certs"
)

// Files are the paths of PEM files.
type Files struct{ Cert, Key, CA string }

// New makes an authority, a key and a certificate for both ends of a connection.
func New(t testing.TB) Files {
	t.Helper()
	return Until(t, time.Now().Add(time.Hour))
}

// Until is New with the time at which all of it ends.
func Until(t testing.TB, end time.Time) Files {
	t.Helper()
	dir := t.TempDir()
	made, err := certs.Make(nil, end.Add(-time.Hour), end)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return Files{Cert: write("node.pem", made.Cert), Key: write("node.key", made.Key), CA: write("ca.pem", made.CA)}
}
