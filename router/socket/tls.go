package socket

import (
	"crypto/tls"

	"github.com/ditask/ditask/internal/certs"
)

// LoadTLS makes mutual TLS 1.3 of PEM files, or of PEM text: this node's
// certificate and key, and the authority that all nodes of the job trust. Any
// certificate of that authority is accepted, whatever host name is in it, since
// nodes move. A certificate that has expired, that is of another authority or that
// does not fit its key is an error that names it. The files are read once: a job
// ends before its certificate does.
func LoadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	return certs.Mutual(certFile, keyFile, caFile)
}
