package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
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
		{cert, key, ca, now.Add(-2 * time.Hour),
			"certificate " + cert + " does not hold before 2026-06-01 11:00 UTC: see whether the clock"},
		{cert, key, put("other.pem", other.CA), now,
			"certificate " + cert + " is no node's certificate of authority " + filepath.Join(dir, "other.pem")},
		{ca, put("other.key", other.Key), ca, now, "do not fit"},
		{cert, put("other.key", other.Key), ca, now, "certificate " + cert + " and key " + filepath.Join(dir, "other.key") + " do not fit"},
		{good.Cert, other.Key, good.CA, now, "certificate of the job and key of the job do not fit"},
		{cert, key, put("empty.pem", "\n"), now, "authority " + filepath.Join(dir, "empty.pem") + " holds no certificate"},
		{cert, key, filepath.Join(dir, "none"), now, "no such file"},
		{cert, "", ca, now, "go together"},
		{"", key, ca, now, "go together"},
		{cert, key, "", now, "go together"},
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
	f.Add("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
		"-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n", "-----BEGIN ")
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

// TestCertificateHoldsFromAnHourBeforeToItsEnd has both ends of its time.
func TestCertificateHoldsFromAnHourBeforeToItsEnd(t *testing.T) {
	f := files(t, now.Add(time.Hour))
	for at, want := range map[time.Duration]string{
		-time.Hour: "", -time.Hour - time.Second: "does not hold before", time.Hour: "", time.Hour + time.Second: "has expired",
	} {
		_, _, err := certs.Load(f.Cert, f.Key, f.CA, now.Add(at))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("after %v: %v, want %q", at, err, want)
		}
	}
}

func TestAuthorityIsOneAndSignsNoOther(t *testing.T) {
	f := files(t, now.Add(time.Hour))
	block, _ := pem.Decode([]byte(f.CA))
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !ca.IsCA || !ca.BasicConstraintsValid || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign ||
		ca.Subject.CommonName != "ditask job" {
		t.Errorf("authority: %+v", ca)
	}
	pair, pool, err := certs.Load(f.Cert, f.Key, f.CA, now)
	if err != nil {
		t.Fatal(err)
	}
	if l := pair.Leaf; l.KeyUsage != x509.KeyUsageDigitalSignature || l.Subject.CommonName != "ditask node" ||
		l.SerialNumber.Cmp(ca.SerialNumber) == 0 || l.SerialNumber.BitLen() < 64 {
		t.Errorf("certificate: %+v", l)
	}
	if err := certs.Verify(pool, nil, x509.ExtKeyUsageAny, now); err == nil || err.Error() != "no certificate" {
		t.Errorf("an empty chain: %v", err)
	}
	if err := certs.Verify(pool, []*x509.Certificate{pair.Leaf}, x509.ExtKeyUsageCodeSigning, now); err == nil {
		t.Error("a node's certificate signs code")
	}
}

// TestCertificateOfAnAuthorityBetween has a certificate whose authority is signed by the job's.
func TestCertificateOfAnAuthorityBetween(t *testing.T) {
	var parent *x509.Certificate
	var signer *ecdsa.PrivateKey
	var texts [3]string
	for i := range texts {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprint(i)}, NotBefore: now, NotAfter: now.Add(time.Hour),
			IsCA: i < 2, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if i == 0 {
			parent, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		if parent, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		signer, texts[i] = key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if _, _, err := certs.Load(texts[2]+texts[1], key, texts[0], now); err != nil {
		t.Errorf("with the authority between: %v", err)
	}
	if _, _, err := certs.Load(texts[2], key, texts[0], now); err == nil {
		t.Error("no error without the authority between")
	}
	// Load skips blocks that are no certificates.
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}))
	if _, _, err := certs.Load(texts[2]+broken+texts[1], key, texts[0], now); err != nil {
		t.Errorf("with a broken one: %v", err)
	}
}

// TestClient is the table of the settings of a client of a server that is not the job's.
func TestClient(t *testing.T) {
	f := files(t, now.Add(time.Hour))
	other := files(t, now.Add(time.Hour))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte(f.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, cert, key, ca string
		pairs               int
		roots               bool
		want                string // of the error
	}{
		{name: "nothing"},
		{name: "an authority in a file", ca: ca, roots: true},
		{name: "all as text", cert: f.Cert, key: f.Key, ca: f.CA, pairs: 1, roots: true},
		{name: "a certificate", cert: f.Cert, key: f.Key, pairs: 1},
		{name: "a certificate without its key", cert: f.Cert, want: "tls: open : no such file"},
		{name: "a key without its certificate", key: f.Key, want: "tls: open : no such file"},
		{name: "another key", cert: f.Cert, key: other.Key, want: "tls: a certificate and its key go together: "},
		{name: "no such authority", ca: ca + "x", want: "tls: open " + ca + "x: no such file"},
		{name: "an authority without a certificate", ca: f.Key, want: "tls: the authority's file holds no certificate"},
	} {
		cfg, err := certs.Client(tt.cert, tt.key, tt.ca)
		if tt.want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || cfg != nil {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil || len(cfg.Certificates) != tt.pairs || (cfg.RootCAs != nil) != tt.roots || cfg.MinVersion != tls.VersionTLS12 {
			t.Errorf("%s: %+v, %v", tt.name, cfg, err)
			continue
		}
		if tt.roots {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM([]byte(f.CA))
			if !cfg.RootCAs.Equal(pool) {
				t.Errorf("%s: other authorities", tt.name)
			}
		}
	}
}

func TestHostThatNoCertificateCanHold(t *testing.T) {
	if f, err := certs.Make([]string{"größe"}, now, now.Add(time.Hour)); err == nil || f != (certs.Files{}) {
		t.Errorf("%+v, %v", f, err)
	}
}

// greet connects two sides, and returns the error of each.
func greet(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan error, 1) // one result
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = tls.Server(conn, server).Read(make([]byte, 1)) // the client's certificate comes after its side of the handshake
		done <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, clientErr = tls.Client(conn, client).Write([]byte("x"))
	_ = conn.(*net.TCPConn).CloseWrite()
	serverErr = <-done
	_ = conn.Close()
	return clientErr, serverErr
}

// Two sides with certificates of one authority accept each other, whatever names are in them.
// A side of another authority, or with an older TLS, is refused.
func TestMutualDemandsTheSameAuthority(t *testing.T) {
	mutual := func(f certs.Files) *tls.Config {
		c, err := certs.Mutual(f.Cert, f.Key, f.CA)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	fresh := func() certs.Files {
		f, err := certs.Make(nil, time.Now(), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	ours := fresh()
	if clientErr, serverErr := greet(t, mutual(ours), mutual(ours)); clientErr != nil || serverErr != nil {
		t.Errorf("one authority: client %v, server %v", clientErr, serverErr)
	}
	other := mutual(fresh())
	const refused = "tls: the other side's certificate is refused"
	if clientErr, _ := greet(t, mutual(ours), other); clientErr == nil || !strings.Contains(clientErr.Error(), refused) {
		t.Errorf("a server of another authority: %v", clientErr)
	}
	other.VerifyConnection = nil // it accepts any server
	if _, serverErr := greet(t, other, mutual(ours)); serverErr == nil {
		t.Error("a client of another authority is accepted")
	}
	other.Certificates = nil
	if _, serverErr := greet(t, other, mutual(ours)); serverErr == nil {
		t.Error("a client without a certificate is accepted")
	}
	old := mutual(ours)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if clientErr, serverErr := greet(t, old, mutual(ours)); clientErr == nil || serverErr == nil {
		t.Error("TLS 1.2 is accepted")
	}
	if c, err := certs.Mutual(ours.Cert, ours.Key, ""); err == nil || c != nil {
		t.Errorf("without an authority: %v", err)
	}
}

func TestEndThatNoCertificateCanHold(t *testing.T) {
	if f, err := certs.Make(nil, now, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil || f != (certs.Files{}) {
		t.Errorf("%v, %v", f, err)
	}
}

// Tools write a description, or an empty line, before the PEM text of a key. It is a key
// all the same, and no path that an error could show.
func TestPEMTextMayHaveADescription(t *testing.T) {
	made, err := certs.Make(nil, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"\n", "Bag Attributes\n    friendlyName: node\n"} {
		if _, _, err := certs.Load(before+made.Cert, before+made.Key, before+made.CA, now); err != nil {
			t.Errorf("after %q: %v", before, err)
		}
	}
	if certs.IsText("certs/node.key") {
		t.Error("a path is PEM text")
	}
}

func TestServerAsksForCertificatesOfAnAuthority(t *testing.T) {
	made, err := certs.Make(nil, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	expired, err := certs.Make(nil, now.AddDate(-3, 0, 0), now.AddDate(-2, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err := certs.Server(made.Cert, made.Key, ""); err != nil || cfg.ClientAuth != tls.NoClientCert || len(cfg.Certificates) != 1 {
		t.Errorf("%+v, %v", cfg, err)
	}
	if cfg, err := certs.Server(made.Cert, made.Key,
		made.CA); err != nil || cfg.ClientAuth != tls.RequireAndVerifyClientCert || cfg.ClientCAs == nil {
		t.Errorf("%+v, %v", cfg, err)
	}
	for want, f := range map[string][3]string{
		"go together":          {made.Cert, "", made.CA},
		"holds no certificate": {made.Cert, made.Key, "-----BEGIN nothing"},
		"has expired":          {expired.Cert, expired.Key, ""},
	} {
		if _, err := certs.Server(f[0], f[1], f[2]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
