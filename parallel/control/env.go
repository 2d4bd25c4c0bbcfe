package control

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The environment variables that a launcher sets for each of its nodes. An
// empty value is the same as none.
const (
	VarJobID       = "DITASK_JOB_ID"
	VarToken       = "DITASK_TOKEN"
	VarTokenFile   = "DITASK_TOKEN_FILE"
	VarNodeID      = "DITASK_NODE_ID"
	VarLocalID     = "DITASK_LOCAL_ID"
	VarNodes       = "DITASK_NODES"
	VarTopology    = "DITASK_TOPOLOGY"
	VarListen      = "DITASK_LISTEN"
	VarListenFD    = "DITASK_LISTEN_FD"
	VarAdvertise   = "DITASK_ADVERTISE"
	VarAttach      = "DITASK_ATTACH"
	VarLabels      = "DITASK_LABELS"
	VarDir         = "DITASK_DIR"
	VarAttempt     = "DITASK_ATTEMPT"
	VarIncarnation = "DITASK_INCARNATION"
	VarControlFD   = "DITASK_CONTROL_FD"
	VarMain        = "DITASK_MAIN"
	VarAutoRecover = "DITASK_AUTO_RECOVER"
	VarRetries     = "DITASK_RETRIES"
	VarResume      = "DITASK_RESUME"
	VarContinue    = "DITASK_CONTINUE"
	VarOverwrite   = "DITASK_OVERWRITE"
	VarGrace       = "DITASK_GRACE"
	VarJoinTimeout = "DITASK_JOIN_TIMEOUT"
	VarPeerTimeout = "DITASK_PEER_TIMEOUT"
	// VarSharedMemory turns on shared memory between processes of one host.
	VarSharedMemory = "DITASK_SHARED_MEMORY"
	VarLogFormat    = "DITASK_LOG_FORMAT"
	VarSeed         = "DITASK_SEED"
	VarTLSCert      = "DITASK_TLS_CERT"
	VarTLSKey       = "DITASK_TLS_KEY"
	VarTLSCA        = "DITASK_TLS_CA"
	VarTrace        = "DITASK_TRACE"
	VarTraceLimit   = "DITASK_TRACE_LIMIT"
	VarReplay       = "DITASK_REPLAY"
	VarReplayFast   = "DITASK_REPLAY_FAST"
	VarBus          = "DITASK_BUS"
	VarBusAuth      = "DITASK_BUS_AUTH"
	VarBusCreds     = "DITASK_BUS_CREDS"
	VarBusNKey      = "DITASK_BUS_NKEY"
)

// BusAuthJob is the BusAuth of a server that a launcher of the job runs.
const BusAuthJob = "job"

// Env is the environment that a launcher gives a node. The zero value is a lone node
// without a launcher.
type Env struct {
	JobID     string // name of the job; nodes of another job are refused
	Token     string // secret of the job; see Secret
	TokenFile string // file that holds the token, when Token is empty

	NodeID   int    // 0..N-1 over the whole job
	LocalID  int    // 0..n-1 within one launcher
	Nodes    int    // expected number of nodes in the job; 0: unknown
	Topology string // mesh, star or alone; empty: mesh

	Listen    string   // unix:///path, tcp://host:port or bus://node.<id>; empty: does not listen
	ListenFD  int      // inherited listening socket for Listen, at least 3; 0: none
	Advertise string   // address that others should dial; empty: Listen
	Attach    []string // addresses to dial; no commas in them
	Labels    []string // the user's labels; no commas in them

	Dir         string // run folder for outputs: logs, checkpoints; empty: none was given
	Attempt     int    // 0 for the first start of this node, then 1, 2, ...
	Incarnation uint64 // grows with every start of this node; see NextIncarnation
	ControlFD   int    // inherited control socket, at least 3; 0: none

	Main        string        // name of the function to run; empty: the first
	AutoRecover bool          // a node that crashes is started again
	Retries     int           // how often this one still is
	Resume      bool          // the user asked to continue from the job's checkpoints, which must exist
	Continue    bool          // the job may have run before: it continues from its checkpoints if there are any
	Overwrite   bool          // the run may replace the one in Dir; for a node without a launcher
	Grace       time.Duration // time between SIGTERM and SIGKILL; 0: not said
	JoinTimeout time.Duration // how long nodes wait for each other at the start; 0: a minute
	PeerTimeout time.Duration // how long a node may be out of reach before others give it up; 0: 8 s
	LogFormat   string        // text or json; empty: text

	SharedMemory int // MiB that a node may take for payloads that it shares with nodes of its host, 1024 at most; 0: none

	Seed int64 // seed of the whole job; 0: not said

	TLSCert string // PEM file with this node's certificate, or PEM text itself
	TLSKey  string // PEM file with its key, or PEM text itself
	TLSCA   string // PEM file with the authority that all nodes trust, or PEM text itself

	Trace      string // folder to record the node's events in; empty: they are not recorded
	TraceLimit int    // MiB that the record may have; 0: 256
	Replay     string // file of such a record: the node runs alone and receives what is in it
	ReplayFast bool   // without the pauses of the record

	// A job whose nodes meet through a server. Listen and Attach are then
	// bus://node.<id>.
	Bus      string // URL of the server, or several with commas; empty: nodes connect with each other
	BusAuth  string // job: prove oneself to the server with what follows from the job's token; empty: as Bus says
	BusCreds string // file with credentials for the server; empty: none
	BusNKey  string // file with the seed of an nkey for the server; empty: none
}

// variable ties one environment variable to one field.
type variable struct {
	name string
	get  func(*Env) string // empty: not encoded
	set  func(*Env, string) error
}

// variables are all fields of an Env, in the order in which they are encoded.
func variables() []variable {
	return []variable{
		text(VarJobID, func(e *Env) *string { return &e.JobID }),
		text(VarToken, func(e *Env) *string { return &e.Token }),
		text(VarTokenFile, func(e *Env) *string { return &e.TokenFile }),
		number(VarNodeID, 0, true, func(e *Env) *int { return &e.NodeID }),
		number(VarLocalID, 0, true, func(e *Env) *int { return &e.LocalID }),
		number(VarNodes, 0, true, func(e *Env) *int { return &e.Nodes }),
		choice(VarTopology, func(e *Env) *string { return &e.Topology }, "mesh", "star", "alone"),
		text(VarListen, func(e *Env) *string { return &e.Listen }),
		number(VarListenFD, 3, false, func(e *Env) *int { return &e.ListenFD }),
		text(VarAdvertise, func(e *Env) *string { return &e.Advertise }),
		list(VarAttach, func(e *Env) *[]string { return &e.Attach }),
		list(VarLabels, func(e *Env) *[]string { return &e.Labels }),
		text(VarDir, func(e *Env) *string { return &e.Dir }),
		number(VarAttempt, 0, true, func(e *Env) *int { return &e.Attempt }),
		{VarIncarnation, func(e *Env) string { return strconv.FormatUint(e.Incarnation, 10) },
			func(e *Env, s string) (err error) {
				e.Incarnation, err = strconv.ParseUint(s, 10, 64)
				return reason(err)
			}},
		number(VarControlFD, 3, false, func(e *Env) *int { return &e.ControlFD }),
		text(VarMain, func(e *Env) *string { return &e.Main }),
		yes(VarAutoRecover, func(e *Env) *bool { return &e.AutoRecover }),
		number(VarRetries, 0, false, func(e *Env) *int { return &e.Retries }),
		yes(VarResume, func(e *Env) *bool { return &e.Resume }),
		mark(VarContinue, func(e *Env) *bool { return &e.Continue }),
		mark(VarOverwrite, func(e *Env) *bool { return &e.Overwrite }),
		duration(VarGrace, func(e *Env) *time.Duration { return &e.Grace }),
		duration(VarJoinTimeout, func(e *Env) *time.Duration { return &e.JoinTimeout }),
		duration(VarPeerTimeout, func(e *Env) *time.Duration { return &e.PeerTimeout }),
		number(VarSharedMemory, 0, false, func(e *Env) *int { return &e.SharedMemory }),
		choice(VarLogFormat, func(e *Env) *string { return &e.LogFormat }, "text", "json"),
		{VarSeed, func(e *Env) string { return strconv.FormatInt(e.Seed, 10) },
			func(e *Env, s string) (err error) {
				e.Seed, err = strconv.ParseInt(s, 10, 64)
				return reason(err)
			}},
		text(VarTLSCert, func(e *Env) *string { return &e.TLSCert }),
		text(VarTLSKey, func(e *Env) *string { return &e.TLSKey }),
		text(VarTLSCA, func(e *Env) *string { return &e.TLSCA }),
		text(VarTrace, func(e *Env) *string { return &e.Trace }),
		number(VarTraceLimit, 1, false, func(e *Env) *int { return &e.TraceLimit }),
		text(VarReplay, func(e *Env) *string { return &e.Replay }),
		mark(VarReplayFast, func(e *Env) *bool { return &e.ReplayFast }),
		text(VarBus, func(e *Env) *string { return &e.Bus }),
		removed("DITASK_BUS_LISTEN", "a node runs no NATS server: start the job with ditask --mq-type nats, "+
			"which runs one, or start a server and set "+VarBus+" to its URL"),
		choice(VarBusAuth, func(e *Env) *string { return &e.BusAuth }, BusAuthJob),
		text(VarBusCreds, func(e *Env) *string { return &e.BusCreds }),
		text(VarBusNKey, func(e *Env) *string { return &e.BusNKey }),
	}
}

// Encode returns the environment variables, each NAME=value, that Parse turns
// into an equal Env. Empty texts and lists, and file descriptors that are 0,
// are left out.
func (e Env) Encode() []string {
	vars := variables()
	out := make([]string, 0, len(vars))
	for _, v := range vars {
		if value := v.get(&e); value != "" {
			out = append(out, v.name+"="+value)
		}
	}
	return out
}

// Format prints an Env like any other struct, but for its secrets.
func (e Env) Format(f fmt.State, verb rune) {
	for _, secret := range []*string{&e.Token, &e.TLSKey} {
		if *secret != "" {
			*secret = "(secret)"
		}
	}
	type plain Env
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), plain(e)) // as fmt does
}

// Parse reads an Env through lookup, which is os.LookupEnv in a program.
// present reports whether a launcher started this process as a node, that is,
// whether DITASK_NODE_ID is set; the other variables are read in any case. The
// error joins all faults, each naming its variable and value.
func Parse(lookup func(string) (string, bool)) (env Env, present bool, err error) {
	var faults []error
	for _, v := range variables() {
		value, ok := lookup(v.name)
		if !ok || value == "" {
			continue
		}
		if v.name == VarNodeID {
			present = true
		}
		if err := v.set(&env, value); err != nil {
			faults = append(faults, fmt.Errorf("%s=%q: %w", v.name, value, err))
		}
	}
	return env, present, errors.Join(faults...)
}

// Strip returns environ without the variables of an Env: the environment for a
// process that is not a node, or for one that gets a separate Env.
func Strip(environ []string) []string {
	names := make(map[string]bool)
	for _, v := range variables() {
		names[v.name] = true
	}
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return names[name]
	})
}

// Secret is the job's token: Token, or else the content of TokenFile without
// white space around it, or else empty. It fails if TokenFile cannot be read
// or holds nothing.
func (e Env) Secret() (string, error) {
	if e.Token != "" || e.TokenFile == "" {
		return e.Token, nil
	}
	b, err := os.ReadFile(e.TokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("token file %s holds no token", e.TokenFile)
	}
	return token, nil
}

// NextIncarnation numbers a start of a node: larger than prev, the number of
// the start before (0 for none), and, so that it also grows over launchers,
// at least now in nanoseconds since 1970.
func NextIncarnation(prev uint64, now time.Time) uint64 {
	return max(prev+1, uint64(max(now.UnixNano(), 0)))
}

func yes(name string, field func(*Env) *bool) variable {
	return variable{
		name,
		func(e *Env) string { return strconv.FormatBool(*field(e)) },
		func(e *Env, s string) (err error) {
			*field(e), err = strconv.ParseBool(s)
			return reason(err)
		},
	}
}

// mark is a yes that is encoded only if it is one.
func mark(name string, field func(*Env) *bool) variable {
	v := yes(name, field)
	get := v.get
	v.get = func(e *Env) string {
		if !*field(e) {
			return ""
		}
		return get(e)
	}
	return v
}

// removed is a variable that had a meaning once. It is never encoded.
func removed(name, advice string) variable {
	return variable{
		name,
		func(*Env) string { return "" },
		func(*Env, string) error { return errors.New(advice) },
	}
}

func text(name string, field func(*Env) *string) variable {
	return variable{
		name,
		func(e *Env) string { return *field(e) },
		func(e *Env, s string) error { *field(e) = s; return nil },
	}
}

func choice(name string, field func(*Env) *string, words ...string) variable {
	return variable{
		name,
		func(e *Env) string { return *field(e) },
		func(e *Env, s string) error {
			if slices.Contains(words, s) {
				*field(e) = s
				return nil
			}
			return fmt.Errorf("want one of %s", strings.Join(words, ", "))
		},
	}
}

func list(name string, field func(*Env) *[]string) variable {
	return variable{
		name,
		func(e *Env) string { return strings.Join(*field(e), ",") },
		func(e *Env, s string) error {
			for part := range strings.SplitSeq(s, ",") {
				if part = strings.TrimSpace(part); part != "" {
					*field(e) = append(*field(e), part)
				}
			}
			return nil
		},
	}
}

// duration is a time that is encoded only if it is said.
func duration(name string, field func(*Env) *time.Duration) variable {
	return variable{
		name,
		func(e *Env) string {
			if *field(e) == 0 {
				return ""
			}
			return field(e).String()
		},
		func(e *Env, s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return errors.New(`want a duration such as "10s"`)
			}
			if d < 0 {
				return errors.New("want at least 0s")
			}
			*field(e) = d
			return nil
		},
	}
}

// number is an integer of at least least; 0 is encoded only if zero is a value.
func number(name string, least int, zero bool, field func(*Env) *int) variable {
	return variable{
		name,
		func(e *Env) string {
			if *field(e) == 0 && !zero {
				return ""
			}
			return strconv.Itoa(*field(e))
		},
		func(e *Env, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return reason(err)
			}
			if n < least {
				return fmt.Errorf("want at least %d", least)
			}
			*field(e) = n
			return nil
		},
	}
}

// reason strips what strconv says besides the reason: Parse names the rest.
func reason(err error) error {
	if ne, ok := errors.AsType[*strconv.NumError](err); ok {
		return ne.Err
	}
	return err
}
