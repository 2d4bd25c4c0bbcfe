package parallel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router/mesh"
)

// loadTLS makes mutual TLS of the files that env names; nil if it names none.
// The job's authority vouches for its nodes: any certificate of it is accepted,
// whatever host name is in it, since nodes move.
func loadTLS(env control.Env) (*tls.Config, error) {
	if env.TLSCert == "" && env.TLSKey == "" && env.TLSCA == "" {
		return nil, nil
	}
	if env.TLSCert == "" || env.TLSKey == "" || env.TLSCA == "" {
		return nil, fmt.Errorf("tls: %s, %s and %s go together", control.VarTLSCert, control.VarTLSKey, control.VarTLSCA)
	}
	cert, err := tls.LoadX509KeyPair(env.TLSCert, env.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	pem, err := os.ReadFile(env.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: %s holds no certificate", env.TLSCA)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{cert},
		ClientCAs:          pool,
		ClientAuth:         tls.RequireAndVerifyClientCert,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the chain, without the name
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("no certificate")
			}
			inter := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				inter.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: pool, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			})
			return err
		},
	}, nil
}

// beyondLoopback reports whether other machines can reach addr.
func beyondLoopback(addr string) bool {
	network, address, err := mesh.Split(addr)
	if err != nil || network != "tcp" {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// version is the version of ditask that is built into this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if info.Main.Path == "github.com/ditask/ditask" {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == "github.com/ditask/ditask" {
			return d.Version
		}
	}
	return ""
}
