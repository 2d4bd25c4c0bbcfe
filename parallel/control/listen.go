package control

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Listener takes over the listening socket that env.ListenFD names, bound by
// the launcher to env.Listen. It returns nil if there is none: the node binds
// env.Listen itself. Closing a unix listener of this kind does not remove its
// path, which belongs to the launcher.
func Listener(env Env) (net.Listener, error) {
	if env.ListenFD == 0 {
		return nil, nil
	}
	file, err := inherit(env.ListenFD, env.Listen)
	if err != nil {
		return nil, fmt.Errorf("open %s=%d: %w", VarListenFD, env.ListenFD, err)
	}
	l, err := net.FileListener(file)
	_ = file.Close() // FileListener has made its own copy
	if err != nil {
		return nil, fmt.Errorf("open %s=%d: %w", VarListenFD, env.ListenFD, err)
	}
	return l, nil
}

// RemoveSocket removes the unix socket of an address such as
// unix:///run/job/n0.sock, and then its folder if that is empty: what a
// launcher does at the end, and its nodes when the launcher was killed. For
// other addresses, and where nothing is left to remove, it does nothing.
func RemoveSocket(addr string) {
	path, ok := strings.CutPrefix(addr, "unix://")
	if !ok || path == "" {
		return
	}
	_ = os.Remove(path)
	_ = os.Remove(filepath.Dir(path)) // fails while another node's socket exists
}
