package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/ditask/ditask/internal/certs"
)

// LoadTLS makes mutual TLS 1.3 of PEM files, or of PEM text: this node's
// certificate and key, and the authority that all nodes of the job trust. Any
// certificate of that authority is accepted, whatever host name is in it, since
// nodes move. A certificate that has expired, that is of another authority or that
// does not fit its key is an error that names it. The files are read once: a job
// ends before its certificate does.
func LoadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	pair, pool, err := certs.Load(certFile, keyFile, caFile, time.Now())
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
			if err := certs.Verify(pool, s.PeerCertificates, x509.ExtKeyUsageAny, time.Now()); err != nil {
				return fmt.Errorf("tls: the other side's certificate is refused: %w", err)
			}
			return nil
		},
		SessionTicketsDisabled: true, // each connection proves it anew
	}, nil
}
