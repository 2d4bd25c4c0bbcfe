// Package connect makes the router of a node as its environment says: over sockets, or
// through a NATS or Redis server.
//
//	env, _, err := control.Parse(os.LookupEnv)
//	r, below, err := connect.Router(env, nil, log)
//	err = r.Start(ctx, labels)
//	...
//	err = r.Close()
//	below()
//
// Package parallel makes nodes with it.
package connect

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/redisbus"
	"github.com/ditask/ditask/router/socket"
)

// Router makes the router of the node that env describes, which has done nothing yet, and the function
// that must be called once, after the router has been closed. tap sees every message, if it is not
// nil. The error names the wrong variable.
func Router(env control.Env, tap router.Tap, log *slog.Logger) (r *router.Router, below func(), err error) {
	cfg, below, err := configOf(env, log)
	if err != nil {
		return nil, nil, err
	}
	cfg.Tap = tap
	if r, err = router.New(cfg); err != nil {
		below()
		return nil, nil, err
	}
	return r, below, nil
}

// Transport makes the transport of the router that [Router] makes, and the function that closes
// it. Nothing is taken over from a launcher if env.ListenFD is 0.
func Transport(env control.Env, log *slog.Logger) (transport router.Transport, end func(), err error) {
	token, err := env.Secret()
	if err != nil {
		return nil, nil, err
	}
	c, err := newConnector(env, token, log)
	if err != nil {
		return nil, nil, err
	}
	return c.transport, c.close, nil
}

// configOf is the configuration of a node's router, and the function to be called after it.
func configOf(env control.Env, log *slog.Logger) (router.Config, func(), error) {
	token, err := env.Secret()
	if err != nil {
		return router.Config{}, nil, err
	}
	topology, err := router.ParseTopology(env.Topology)
	if err != nil {
		return router.Config{}, nil, err
	}
	c, err := newConnector(env, token, log)
	if err != nil {
		return router.Config{}, nil, err
	}
	return router.Config{
		Job: env.JobID, Token: []byte(token), Node: env.NodeID, Incarnation: env.Incarnation, Expect: env.Nodes, Topology: topology,
		Version: version(), Transport: c.transport, Listener: c.listener, Listen: env.Listen, Advertise: env.Advertise, Attach: env.Attach,
		JoinTimeout: env.JoinTimeout, PeerTimeout: env.PeerTimeout, Elastic: env.AutoRecover, Logger: log,
		SharedBytes: env.SharedMemory << 20,
	}, c.close, nil
}

// connector is a transport and the parts below it.
type connector struct {
	transport router.Transport
	listener  net.Listener // bound by the launcher; nil: the transport binds
	close     func()       // called once, after the router
}

// newConnector chooses the transport: by the scheme of the server between the nodes,
// or sockets if there is none.
func newConnector(env control.Env, token string, log *slog.Logger) (*connector, error) {
	scheme, _, _ := strings.Cut(env.Bus, "://")
	switch scheme {
	case "":
		return connectMesh(env, token, log)
	case "nats", "tls":
		return connectNATS(env, token, log)
	case "redis", "rediss":
		return connectRedis(env, token, log)
	}
	return nil, fmt.Errorf("%s: no transport for %s: want nats://, tls://, redis:// or rediss://host:port", control.VarBus,
		natsbus.Public(env.Bus))
}

// connectMesh connects nodes by sockets.
func connectMesh(env control.Env, token string, log *slog.Logger) (*connector, error) {
	tlsConfig, err := jobTLS(env)
	if err != nil {
		return nil, err
	}
	network, address, err := socket.Split(env.Listen)
	open := err == nil && network == "tcp" && control.BeyondLoopback(address)
	if token == "" && open {
		return nil, fmt.Errorf("%s is open to other machines and the job has no token: set %s, or listen on loopback", env.Listen,
			control.VarToken)
	}
	elsewhere := ""
	for _, addr := range env.Attach {
		network, address, err := socket.Split(addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", control.VarAttach, err)
		}
		if elsewhere == "" && network == "tcp" && control.BeyondLoopback(address) {
			elsewhere = addr
		}
	}
	if token == "" && elsewhere != "" {
		return nil, fmt.Errorf("%s is reached over the network and the job has no token: set %s", elsewhere, control.VarToken)
	}
	alone := env.ControlFD == 0 // a launcher logs that once for all its nodes
	switch {
	case alone && tlsConfig == nil && open:
		log.Warn("other machines can reach this node, and there is no TLS: anyone on the network path can read and change the messages",
			"listen", env.Listen)
	case alone && tlsConfig == nil && elsewhere != "":
		log.Warn("this node reaches another machine, and there is no TLS: anyone on the network path can read and change the messages",
			"attach", elsewhere)
	}
	transport := socket.New(socket.Config{TLS: tlsConfig})
	l, err := control.Listener(env)
	if err != nil {
		return nil, err
	}
	c := &connector{transport: transport, close: func() {}}
	if l != nil {
		c.listener = transport.Wrap(l)
	}
	return c, nil
}

// How long a node waits for the server at the start.
const (
	serverElsewhere = 10 * time.Second // one that should run already
	serverOfJob     = time.Minute      // one that a launcher of the job starts, perhaps on another machine
)

// connectNATS connects nodes through a NATS server.
func connectNATS(env control.Env, token string, log *slog.Logger) (*connector, error) {
	if err := checkBus(env, token, log); err != nil {
		return nil, err
	}
	tlsConfig, err := busTLS(env)
	if err != nil {
		return nil, err
	}
	cfg := natsConfig(env, token)
	cfg.TLS, cfg.Logger = tlsConfig, log
	transport, err := natsbus.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", control.VarBus, err)
	}
	return &connector{transport: transport, close: func() { _ = transport.Close() }}, nil
}

// natsConfig returns the configuration for the NATS server that env names. A server of the job
// is waited for as long as its launcher may take, and proves that it knows the token.
func natsConfig(env control.Env, token string) natsbus.Config {
	cfg := natsbus.Config{
		URL: env.Bus, Job: env.JobID, CredsFile: env.BusCreds, NKeyFile: env.BusNKey,
		Name: fmt.Sprintf("ditask %s node.%d", env.JobID, env.NodeID), Nodes: env.Nodes, ConnectTimeout: serverElsewhere,
	}
	if env.BusAuth == control.BusAuthJob {
		cfg.Key, cfg.ConnectTimeout = natsbus.JobKey(token), max(serverOfJob, env.JoinTimeout)
	}
	return cfg
}

// connectRedis connects nodes through a Redis server.
func connectRedis(env control.Env, token string, log *slog.Logger) (*connector, error) {
	if err := checkBus(env, token, log); err != nil {
		return nil, err
	}
	tlsConfig, err := busTLS(env)
	if err != nil {
		return nil, err
	}
	transport, err := redisbus.New(redisbus.Config{URL: env.Bus, Job: env.JobID, TLS: tlsConfig, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", control.VarBus, err)
	}
	return &connector{transport: transport, close: func() {}}, nil // it ends with its last connection
}

// checkBus checks the settings of a job over a server.
func checkBus(env control.Env, token string, log *slog.Logger) error {
	for name, list := range map[string][]string{control.VarListen: {env.Listen}, control.VarAttach: env.Attach} {
		for _, addr := range list {
			if _, err := natsbus.Node(addr); err != nil && addr != "" {
				return fmt.Errorf("%s: %w, since %s is set", name, err, control.VarBus)
			}
		}
	}
	if token != "" {
		if open := env.OpenServer(); open != "" && env.ControlFD == 0 { // as in connectMesh
			log.Warn("the server is reached over the network without TLS: anyone on the network path can read and change the messages, "+
				"and read a password of the server",
				"server", open)
		}
		return nil
	}
	_, hosts, _ := strings.Cut(natsbus.Public(env.Bus), "://")
	if env.BusAuth == control.BusAuthJob || control.BeyondLoopback(hosts) {
		return fmt.Errorf("the job has no token, and other users can reach the server at %s: set %s", natsbus.Public(env.Bus),
			control.VarToken)
	}
	return nil
}

// jobTLS is the TLS between the nodes of the job; nil: none.
func jobTLS(env control.Env) (*tls.Config, error) {
	if env.TLSCert == "" && env.TLSKey == "" && env.TLSCA == "" {
		return nil, nil
	}
	return socket.LoadTLS(env.TLSCert, env.TLSKey, env.TLSCA)
}

// busTLS is the TLS to a server; nil: none is asked for. A server that a launcher runs
// is trusted as a node is, whatever its host's name; one elsewhere has a name.
func busTLS(env control.Env) (*tls.Config, error) {
	if env.BusAuth == control.BusAuthJob || env.TLSCert == "" && env.TLSKey == "" && env.TLSCA == "" {
		return jobTLS(env)
	}
	return certs.Client(env.TLSCert, env.TLSKey, env.TLSCA)
}

// version is the version of ditask that is built into this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionIn(info)
}

// versionIn is the version of ditask in a program; empty: the program does not have ditask.
func versionIn(info *debug.BuildInfo) string {
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
