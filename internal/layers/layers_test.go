package layers

import (
	"os"
	"testing"
)

// module is the import path of the tree.
const module = "github.com/ditask/ditask"

// arrows are the allowed imports, one line for each package: the package before the arrow may import those behind it.
// A line "x (test)" adds packages that only tests of x may import. A folder with /... stands for all packages in it; the
// line with the longest name counts. A line that begins with a tab continues the line before it.
//
//	std      the standard library without package testing, which is named where
//	         code that is not a test may use it
//	x/y      a package of this module, or of the standard library
//	a.b/c    a module from elsewhere, with all its packages
//	any      whatever there is
const arrows = `
# The types that the first two layers share.
messaging -> std

# Layer one: the engine.
task -> std internal/printable messaging
middleware -> std task

# OpenTelemetry, for who imports it.
middleware/tracing -> std task go.opentelemetry.io/otel
middleware/tracing (test) -> parallel

# Layer two: bytes.
router -> std internal/printable messaging router/sharedmem
router/sharedmem -> std
router (test) -> router/memory
router/memory -> std router
router/socket -> std router internal/certs
router/socket (test) -> golang.org/x/net internal/certtest
router/natsbus/internal/proof -> std
router/natsbus/internal/proof (test) -> internal/certs
router/broker -> std internal/printable
router/broker (test) -> router/broker/brokertest
router/broker/brokertest -> std router/broker
router/natsbus -> std router/broker router/natsbus/internal/proof github.com/nats-io/nats.go internal/printable
router/natsbus (test) -> internal/certs router router/socket router/natsbus/embedded github.com/nats-io
router/natsbus/embedded -> std router/natsbus/internal/proof github.com/nats-io/nats-server internal/printable
router/natsbus/embedded (test) -> router/natsbus/internal/proof github.com/nats-io/nats.go
router/redisbus -> std router/broker github.com/redis/go-redis internal/printable
router/redisbus (test) -> golang.org/x/net internal/redistest router router/socket github.com/redis/go-redis
router/routertest -> std testing router

payload -> std
payload (test) -> github.com/fxamacker/cbor

# Layer three: mathematics.
policies/nn/kernels -> std golang.org/x/sys
policies/nn/kernels (test) -> gonum.org/v1/gonum
policies/graph -> std
policies/nn -> std policies/nn/kernels policies/graph

policies -> std policies/nn envs policies/graph
policies/export (test) -> any
policies/export -> std internal/safefile policies policies/graph policies/nn envs
policies/algorithm -> std policies policies/nn policies/data envs
policies/dist -> std policies/nn
policies/data -> std policies policies/nn
policies/policytest -> std testing internal/onnxtest policies policies/export policies/graph policies/nn envs
policies/policytest (test) -> policies/data
policies/actorcritic -> std policies policies/nn policies/data policies/dist envs policies/graph
policies/qnetwork -> std policies policies/nn envs policies/graph
policies/dqn -> std policies policies/nn policies/algorithm policies/qnetwork envs
policies/c51 -> std policies policies/nn policies/algorithm policies/qnetwork envs policies/graph
policies/qrdqn -> std policies policies/nn policies/algorithm policies/qnetwork envs policies/graph
policies/rainbow -> std policies policies/nn policies/data policies/algorithm policies/c51 envs
policies/ppo -> std policies policies/nn policies/data policies/algorithm policies/actorcritic envs
policies/a2c -> std policies policies/nn policies/data policies/algorithm policies/actorcritic envs
policies/impala -> std policies policies/nn policies/data policies/algorithm policies/actorcritic envs
policies/appo -> std policies policies/nn policies/data policies/algorithm policies/actorcritic envs
policies/dqn (test) -> policies/data policies/internal/offpolicy
policies/c51 (test) -> policies/data policies/internal/offpolicy
policies/qrdqn (test) -> policies/data policies/internal/offpolicy
policies/rainbow (test) -> policies/internal/offpolicy
policies/ppo (test) -> policies/internal/collecting
policies/a2c (test) -> policies/data policies/internal/collecting
policies/impala (test) -> policies/internal/collecting
policies/appo (test) -> policies/internal/collecting
policies/her (test) -> policies/dqn
policies/normalize (test) -> policies/dqn policies/ppo policies/td3 policies/policytest
policies/... -> std policies policies/nn policies/data policies/dist policies/algorithm envs policies/graph
policies/... (test) -> policies/internal/offpolicy

envs/nprand -> std
envs -> std envs/nprand internal/nearest
envs/gym -> std envs internal/printable golang.org/x/sys
envs/gym (test) -> envs/nprand

# Engine meets mathematics.
middleware/rl -> std internal/safefile internal/tensorboard task policies policies/nn policies/data envs
middleware/rl (test) -> policies/dqn policies/her policies/normalize policies/ppo policies/a2c policies/impala policies/sac
	policies/qlearning policies/policytest parallel parallel/control

# A training as a config says.
train -> std internal/runfolder internal/safefile go.yaml.in/yaml task middleware/rl policies policies/algorithm policies/data
	policies/her policies/normalize policies/a2c policies/appo policies/bc policies/c51 policies/cql policies/ddpg policies/dqn
	policies/impala policies/ppo policies/qlearning policies/qrdqn policies/rainbow policies/sac policies/td3 envs envs/gym
	internal/nearest
train (test) -> task parallel

# Engine meets bytes.
parallel -> std internal/safefile task router router/memory payload parallel/connect parallel/control parallel/metrics
	parallel/rundir parallel/trace internal/printable
parallel/connect -> std router router/socket router/natsbus router/redisbus internal/certs parallel/control
parallel/rundir -> std internal/safefile internal/printable
parallel/trace -> std internal/safefile
parallel/metrics -> std
parallel/metrics (test) -> github.com/prometheus/common github.com/prometheus/client_model
parallel/control -> std parallel/metrics internal/printable
parallel/launch -> std internal/safefile golang.org/x/sys parallel/control parallel/metrics parallel/placement internal/printable

# Pure: flags in, plan out. No files, no clock, no sockets: net is for addresses.
parallel/placement -> bytes encoding/json errors fmt io maps net net/netip slices strconv strings
internal/variables -> errors fmt strconv
parallel/slurm -> errors fmt math slices strconv strings parallel/placement internal/variables
parallel/slurm (test) -> std internal/slurmtest
parallel/kube -> errors fmt hash/fnv math net/netip slices strconv strings parallel/placement internal/variables
parallel/kube (test) -> std

# The command.
internal/cli/call -> std github.com/urfave/cli internal/printable
internal/cli/flags -> std github.com/urfave/cli parallel/control parallel/placement parallel/trace
internal/cli/quote -> std
internal/cli/quote (test) -> go.yaml.in/yaml
internal/cli/token -> std internal/safefile parallel/control parallel/slurm
internal/cli/build -> std internal/safefile github.com/urfave/cli internal/cli/call internal/cli/flags
internal/cli/screen -> std golang.org/x/sys golang.org/x/term parallel/control parallel/launch internal/printable
internal/cli/slurm -> std internal/safefile github.com/urfave/cli internal/cli/call internal/cli/flags internal/cli/quote internal/printable
internal/cli/k8s -> std internal/safefile github.com/urfave/cli internal/cli/call internal/cli/flags internal/cli/quote
	internal/cli/token parallel/control parallel/placement parallel/kube internal/printable
internal/cli/k8s (test) -> go.yaml.in/yaml github.com/nats-io/nats-server
internal/cli/live -> std internal/cli/screen internal/printable parallel/launch train
internal/cli/live (test) -> middleware/rl
internal/cli/job -> std github.com/urfave/cli internal/cli/call internal/cli/flags internal/cli/token internal/cli/build
	internal/cli/screen internal/certs parallel/control parallel/metrics parallel/launch parallel/placement parallel/rundir
	parallel/slurm parallel/kube router/natsbus router/natsbus/embedded router/redisbus internal/printable
internal/cli -> std internal/safefile github.com/urfave/cli internal/cli/call internal/cli/flags internal/cli/build
	internal/cli/job internal/cli/slurm internal/cli/k8s internal/cli/train internal/certs internal/traceview parallel/connect
	parallel/control parallel/trace parallel/launch parallel/placement parallel/slurm parallel/kube router/natsbus router/redisbus
	internal/printable internal/nearest
internal/traceview -> std parallel/trace internal/printable
internal/cli (test) -> parallel/metrics internal/redistest router/natsbus/embedded github.com/rogpeppe/go-internal
	github.com/prometheus/common github.com/prometheus/client_model parallel task internal/terminaltest
internal/cli/train -> std github.com/urfave/cli internal/certs internal/cli/call internal/cli/flags internal/cli/job
	internal/cli/screen internal/plot internal/printable internal/runs internal/serve parallel parallel/control policies
	policies/algorithm policies/export envs envs/gym middleware/rl train internal/safefile internal/cli/live internal/film parallel/launch
ditask -> std internal/cli

examples/... -> any

# Tools of tests, and what many packages use.
internal/leak -> std testing go.uber.org/goleak
internal/terminaltest -> std testing golang.org/x/sys
internal/certs -> std
internal/safefile -> std
internal/runfolder -> std internal/printable go.yaml.in/yaml
internal/serve -> std internal/printable envs policies policies/nn parallel/metrics
internal/serve (test) -> policies/ppo github.com/prometheus/common github.com/prometheus/client_model
internal/film -> std golang.org/x/image
internal/plot -> std internal/printable internal/runfolder golang.org/x/image gonum.org/v1/plot
internal/runs -> std internal/printable internal/runfolder parallel/rundir
internal/tensorboard -> std internal/safefile google.golang.org/protobuf/encoding/protowire
internal/pages -> std
internal/pages (test) -> internal/cli policies/algorithm train
internal/onnxtest (test) -> envs policies/export policies/ppo policies/qrdqn
internal/onnxtest -> std testing internal/pythontest google.golang.org/protobuf/encoding/protowire
internal/nearest -> std
internal/printable -> std
internal/certtest -> std testing internal/certs
internal/freeport -> std testing
internal/pythontest -> std testing
internal/race -> std
internal/logtest -> std
internal/redistest -> std testing internal/freeport github.com/redis/go-redis
internal/slurmtest -> std testing internal/leak internal/freeport
internal/bench -> std
internal/bench (test) -> envs policies policies/data policies/dqn policies/nn policies/nn/kernels policies/policytest policies/ppo
	policies/sac middleware/rl gonum.org/v1/gonum/blas parallel parallel/control task router router/natsbus/embedded router/redisbus
	internal/redistest github.com/nats-io/nats.go github.com/redis/go-redis
internal/results -> any
internal/faultlab -> std
internal/faultlab (test) -> parallel router router/memory task
internal/faultlab/steady -> std parallel task
internal/faultlab/hostile -> std
internal/faultlab/hostile (test) -> router router/memory
internal/faultlab/chaos -> std
internal/faultlab/clock -> std
internal/faultlab/chaos (test) -> internal/cli internal/cli/job internal/faultlab internal/faultlab/hostile internal/redistest
	router/natsbus/embedded parallel parallel/connect parallel/control parallel/kube router task
internal/deadline -> std
internal/mutate -> std
internal/layers -> std

... (test) -> testing go.uber.org/goleak github.com/google/go-cmp internal/deadline internal/leak internal/certtest
	internal/freeport internal/logtest internal/pythontest internal/race router/routertest policies/policytest
`

// apart are packages that must not reach each other by any path of arrows: those before the bar must not reach those
// behind it.
const apart = `
task | router payload policies envs parallel middleware
router payload | task policies envs parallel middleware
policies policies/nn policies/nn/kernels policies/data envs | task router payload parallel middleware
messaging | task router payload policies envs parallel middleware
middleware | router payload policies envs parallel
middleware/rl | router payload parallel
middleware/tracing | router payload policies envs parallel
parallel | policies envs middleware router/natsbus/embedded github.com/nats-io/nats-server
parallel/connect | task payload policies envs middleware
parallel/control parallel/metrics parallel/rundir parallel/trace parallel/placement parallel/slurm
	parallel/kube parallel/launch
	| task router payload policies envs middleware
internal/cli/job internal/cli/build internal/cli/slurm internal/cli/k8s internal/cli/flags internal/cli/screen
	internal/cli/token internal/cli/call
	| router task payload policies envs middleware
`

func TestImportsFollowTheArrows(t *testing.T) {
	rules, err := parse(arrows)
	if err != nil {
		t.Fatal(err)
	}
	imports, err := read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(imports) == 0 {
		t.Fatal("no Go file found")
	}
	for _, fault := range check(rules, imports) {
		t.Error(fault)
	}
}

func TestTrunksDoNotReachEachOther(t *testing.T) {
	rules, err := parse(arrows)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range reaches(rules, apart) {
		t.Error(fault)
	}
}
