package control

import (
	"net"
	"strings"
)

// OpenServer is the first server in Bus that is reached over the network without TLS, without
// what is secret in its URL; empty: there is none. TLS that a server may ask for is none, as
// a server on the way cannot ask for anything.
func (e *Env) OpenServer() string {
	if e.Bus == "" {
		return ""
	}
	for part := range strings.SplitSeq(e.Bus, ",") {
		scheme, rest, ok := strings.Cut(strings.TrimSpace(part), "://")
		if !ok {
			scheme, rest = "nats", scheme // the others in a list of NATS servers
		}
		rest = rest[strings.LastIndexByte(rest, '@')+1:]
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			rest = rest[:end]
		}
		plain := scheme == "redis" || scheme == "nats" && e.TLSCert+e.TLSKey+e.TLSCA == ""
		if plain && BeyondLoopback(rest) {
			return scheme + "://" + rest
		}
	}
	return ""
}

// BeyondLoopback reports whether an address, a host with or without a port, leads to other
// machines, or can be reached by them. A name may be that of any machine.
func BeyondLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
