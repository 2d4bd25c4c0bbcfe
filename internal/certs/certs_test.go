package certs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certs"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func files(t *testing.T, end time.Time) certs.Files {
	t.Helper()
	f, err := certs.Make([]string{"gpu1", "10.0.0.7"}, now, end)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCertificateIsForBothEndsOfAConnection(t *testing.T) {
	f := files(t, now.Add(time.Hour))
	pair, _, err := certs.Load(f.Cert, f.Key, f.CA, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"gpu1", "10.0.0.7", "localhost", "127.0.0.1", "::1"} {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(pair.Leaf.ExtKeyUsage); got != "[serverAuth clientAuth]" {
		t.Error(got)
	}
	if pair.Leaf.IsCA {
		t.Error("a node is an authority")
	}
}

func TestLoadSaysWhichOfThemIsWrong(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, other := files(t, now.Add(time.Hour)), files(t, now.Add(time.Hour))
	cert, key, ca := put("node.pem", good.Cert), put("node.key", good.Key), put("ca.pem", good.CA)
	for _, c := range []struct {
		cert, key, ca string
		at            time.Time
		want          string
	}{
		{cert, key, ca, now, ""},
		{good.Cert, key, good.CA, now, ""},
		{cert, key, ca, now.Add(2 * time.Hour), "certificate " + cert + " has expired, on 2026-06-01 13:00 UTC: make a new one"},
		{cert, key, ca, now.Add(-2 * time.Hour), "certificate " + cert + " does not hold before 2026-06-01 11:00 UTC: see whether the clock"},
		{cert, key, put("other.pem", other.CA), now, "certificate " + cert + " is no node's certificate of authority " + filepath.Join(dir, "other.pem")},
		{ca, put("other.key", other.Key), ca, now, "do not fit"},
		{cert, put("other.key", other.Key), ca, now, "certificate " + cert + " and key " + filepath.Join(dir, "other.key") + " do not fit"},
		{good.Cert, other.Key, good.CA, now, "certificate of the job and key of the job do not fit"},
		{cert, key, put("empty.pem", "\n"), now, "authority " + filepath.Join(dir, "empty.pem") + " holds no certificate"},
		{cert, key, filepath.Join(dir, "none"), now, "no such file"},
		{cert, "", ca, now, "go together"},
	} {
		_, _, err := certs.Load(c.cert, c.key, c.ca, c.at)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("want %q: %v", c.want, err)
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("the key is in the error: %v", err)
		}
	}
}

// FuzzLoad reads whatever is in the files.
func FuzzLoad(f *testing.F) {
	good, err := certs.Make(nil, now, now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Cert, good.Key, good.CA)
	f.Add(good.CA, good.Key, good.Cert)
	f.Add(good.Cert+good.CA, good.Key, good.CA+good.CA)
	f.Add("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n", "-----BEGIN ")
	f.Fuzz(func(t *testing.T, cert, key, ca string) {
		for _, s := range []string{cert, key, ca} {
			if !certs.IsText(s) {
				return // a path
			}
		}
		pair, pool, err := certs.Load(cert, key, ca, now)
		if err == nil && (pool == nil || pair.Leaf == nil) {
			t.Fatal("neither read nor refused")
		}
	})
}
