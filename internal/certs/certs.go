// Package certs makes and reads the certificates of a job: an authority that all
// nodes trust, and one certificate of it that they all use, as both ends of a
// connection.
//
//	files, err := certs.Make([]string{"gpu1"}, now, now.Add(30*24*time.Hour))
//	pair, pool, err := certs.Load(files.Cert, files.Key, files.CA, now)
//
// A process with the certificate and its key belongs to the job, on any host. Make
// keeps no copy of the authority's key, so the authority can sign no further
// certificate.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// Files are an authority, a certificate and its key, each as PEM text.
type Files struct{ CA, Cert, Key string }

// skew is how far the clocks of two hosts may be apart.
const skew = time.Hour

// Make makes a fresh authority, and a certificate of it with an ECDSA key on
// P-256. hosts are names and addresses that go into it besides those of the
// loopback interface. Both hold from an hour before now until end.
func Make(hosts []string, now, end time.Time) (Files, error) {
	caKey, caErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(caErr, err); err != nil {
		return Files{}, err
	}
	ca := template("ditask job", now, end)
	ca.IsCA, ca.BasicConstraintsValid, ca.MaxPathLenZero = true, true, true
	ca.KeyUsage = x509.KeyUsageCertSign
	leaf := template("ditask node", now, end)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf.DNSNames = []string{"localhost"}
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, h)
		}
	}
	caDER, caErr := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	keyDER, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(caErr, err, keyErr); err != nil {
		return Files{}, err
	}
	return Files{CA: encode("CERTIFICATE", caDER), Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}, nil
}

func template(name string, now, end time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: end}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Load reads a certificate, its key and the authority, each from a file, or from PEM
// text itself, which a description may precede. It checks that the three belong
// together and that the certificate holds at the time now; the error says which
// does not.
func Load(cert, key, ca string, now time.Time) (tls.Certificate, *x509.CertPool, error) {
	fail := func(format string, args ...any) (tls.Certificate, *x509.CertPool, error) {
		return tls.Certificate{}, nil, fmt.Errorf("tls: "+format, args...)
	}
	if cert == "" || key == "" || ca == "" {
		return fail("a certificate, its key and an authority go together")
	}
	texts := [3][]byte{}
	for i, s := range []string{cert, key, ca} {
		b, err := read(s)
		if err != nil {
			return fail("%w", err)
		}
		texts[i] = b
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return fail("certificate %s and key %s do not fit: %s", name(cert), name(key), strings.TrimPrefix(err.Error(), "tls: "))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(texts[2]) {
		return fail("authority %s holds no certificate", name(ca))
	}
	leaf := pair.Leaf
	const day = "2006-01-02 15:04 MST"
	if now.After(leaf.NotAfter) {
		return fail("certificate %s has expired, on %s: make a new one, for example with ditask tls", name(cert), leaf.NotAfter.Format(day))
	}
	if now.Before(leaf.NotBefore) {
		return fail("certificate %s does not hold before %s: see whether the clock is right", name(cert), leaf.NotBefore.Format(day))
	}
	if err := Verify(pool, append([]*x509.Certificate{leaf}, rest(pair)...), x509.ExtKeyUsageClientAuth, now); err != nil {
		return fail("certificate %s is no node's certificate of authority %s: %w", name(cert), name(ca), err)
	}
	return pair, pool, nil
}

// rest returns the certificates that come after the first one in its file.
func rest(pair tls.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// Verify reports whether the first certificate of a chain holds, may be used so and
// leads to pool, whatever host name is in it.
func Verify(pool *x509.CertPool, chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	inter := x509.NewCertPool()
	for _, c := range chain[1:] {
		inter.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: inter, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	return err
}

// begins is in PEM text, perhaps after a description of what follows, and in no path.
const begins = "-----BEGIN "

// Mutual makes the TLS 1.3 of a side that demands a certificate of the same authority
// from the other side, whatever host name is in it: each a file or PEM text.
func Mutual(cert, key, ca string) (*tls.Config, error) {
	pair, pool, err := Load(cert, key, ca, time.Now())
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{pair},
		ClientCAs:          pool,
		ClientAuth:         tls.RequireAndVerifyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the chain, without the name
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := Verify(pool, s.PeerCertificates, x509.ExtKeyUsageAny, time.Now()); err != nil {
				return fmt.Errorf("tls: the other side's certificate is refused: %w", err)
			}
			return nil
		},
		SessionTicketsDisabled: true, // each connection proves it again
	}, nil
}

// Server makes the TLS of a server for clients that are none of the job's nodes, with a certificate and its key.
// With an authority it demands a certificate of that from its clients. Each is a file or PEM text.
func Server(cert, key, ca string) (*tls.Config, error) {
	if cert == "" || key == "" {
		return nil, errors.New("tls: a certificate and its key go together")
	}
	cfg, err := Client(cert, key, ca)
	if err != nil {
		return nil, err
	}
	if ca != "" {
		cfg.ClientCAs, cfg.RootCAs, cfg.ClientAuth = cfg.RootCAs, nil, tls.RequireAndVerifyClientCert
	}
	leaf, now := cfg.Certificates[0].Leaf, time.Now()
	if now.After(leaf.NotAfter) {
		return nil, fmt.Errorf("tls: certificate %s has expired, on %s: make a new one", name(cert), leaf.NotAfter.Format(time.RFC3339))
	}
	return cfg, nil
}

// Client makes the TLS of a client of a server that is none of the job's nodes:
// of the authority that it trusts, or the system's, and a certificate with its
// key, or none; each a file or PEM text. The server's certificate must have its
// host's name.
func Client(cert, key, ca string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" || key != "" {
		certPEM, err := read(cert)
		keyPEM, keyErr := read(key)
		if err = errors.Join(err, keyErr); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("tls: a certificate and its key go together: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if ca != "" {
		pem, err := read(ca)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("tls: the authority's file holds no certificate")
		}
	}
	return cfg, nil
}

// IsText reports whether s is PEM text, and no path.
func IsText(s string) bool { return strings.Contains(s, begins) }

func read(s string) ([]byte, error) {
	if IsText(s) {
		return []byte(s), nil
	}
	return os.ReadFile(s)
}

// name returns the name of a file for messages, never its text.
func name(s string) string {
	if IsText(s) {
		return "of the job"
	}
	return s
}
