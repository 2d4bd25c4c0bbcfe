package placement

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Address is the address at which a node listens or is dialled.
type Address struct {
	Scheme string // tcp or unix
	Host   string // with tcp: a name or an address, without brackets
	Port   int    // with tcp: 0..65535
	Path   string // with unix: absolute
}

// ParseAddress reads tcp://host:port or unix:///path.
func ParseAddress(s string) (Address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case strings.ContainsAny(s, ", \t\r\n\x00"):
		return Address{}, errors.New("an address has no commas and no white space")
	case ok && scheme == "unix":
		if !strings.HasPrefix(rest, "/") {
			return Address{}, errors.New("want unix:///path, the path absolute")
		}
		return Address{Scheme: scheme, Path: rest}, nil
	case ok && scheme == "tcp":
		return parseTCP(rest)
	default:
		return Address{}, errors.New("want tcp://host:port or unix:///path")
	}
}

func parseTCP(rest string) (Address, error) {
	host, number, err := net.SplitHostPort(rest)
	if err != nil || !validHost(host) {
		return Address{}, errors.New("want tcp://host:port")
	}
	port, err := strconv.Atoi(number)
	if err != nil || port < 0 || port > 65535 {
		return Address{}, fmt.Errorf("port %q: want a number from 0 to 65535", number)
	}
	return Address{Scheme: "tcp", Host: host, Port: port}, nil
}

// validHost reports whether s can be a name or an address, without brackets.
func validHost(s string) bool {
	if strings.Contains(s, ":") { // only an IPv6 address has colons
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return s != "" && !strings.ContainsAny(s, "/@[], \t\r\n\x00")
}

// CheckHost reports whether s is the name or the address of a host alone, without a scheme
// and a port. form is a format for a host and a port: the error shows by it how to write
// them as two values.
func CheckHost(s, form string) error {
	if validHost(bareHost(s)) {
		return nil
	}
	if a, err := parseTCP(strings.TrimPrefix(s, "tcp://")); err == nil {
		return fmt.Errorf("want a host without a port: "+form, a.Host, a.Port)
	}
	return errors.New("want the name or the address of a host, without a port")
}

// bareHost is a host without the brackets of an IPv6 address.
func bareHost(s string) string {
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]")
	}
	return s
}

// String is the address in the form that ParseAddress reads.
func (a Address) String() string {
	if a.Scheme == "unix" {
		return "unix://" + a.Path
	}
	return a.Scheme + "://" + a.HostPort()
}

// HostPort is the part of a tcp address that package net dials and listens on.
func (a Address) HostPort() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// Wildcard reports whether the address stands for all addresses of a machine.
func (a Address) Wildcard() bool {
	ip, err := netip.ParseAddr(a.Host)
	return a.Scheme == "tcp" && err == nil && ip.IsUnspecified()
}

// Exposed reports whether other machines can reach the address. A name may be
// anything but localhost.
func (a Address) Exposed() bool { return a.Scheme == "tcp" && !loopback(a.Host) }

// loopback reports whether a host is this machine and no other can reach it.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Loopback is the address with the machine's own as host.
func (a Address) Loopback() Address {
	a.Host = "127.0.0.1"
	return a
}
