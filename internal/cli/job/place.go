package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

// place is the position of this launcher among those of its job.
type place struct {
	site     placement.Site
	slurm    slurm.Place
	step     *slurm.Step // the step whose task this is; nil: not in a step
	pod      *kube.Pod   // the pod of Kubernetes that this is; nil: not in a pod, or the only one
	restarts int         // how often Slurm has requeued the job
	hint     string      // a warning for the user; may be empty
	keyed    bool        // the token is derived from the user's key
}

// placeOf determines where this launcher runs: on the platform of --platform; else as a
// task of a Slurm step, if its variables are set; else as one of several pods, if their
// variables are set; else alone.
func placeOf(ctx *urfave.Context) (place, error) {
	platform := flags.Platform(ctx)
	rank, several := ctx.Int("local_rank"), ctx.IsSet("local_rank")
	switch {
	case several && byTorchrun(platform):
		return torchPlace(rank)
	case several: // checkPlatform reports wrong ranks
		return place{site: sameHost(min(max(rank, 0), maxLocalRank))}, nil
	case platform == "slurm":
		return slurmPlace(true)
	case platform == "kubernetes":
		return kubePlace(place{}, true)
	case platform == "":
		p, err := slurmPlace(false)
		if err != nil || p.step != nil {
			return p, err
		}
		return kubePlace(p, false)
	}
	return place{}, nil
}

// byTorchrun reports whether the variables of torchrun place this launcher.
// torch.distributed.launch also gives --local_rank.
func byTorchrun(platform string) bool {
	return (platform == "" || platform == "kubernetes") && slurm.Where(os.LookupEnv) != slurm.Task &&
		kube.Where(os.LookupEnv) == kube.Torchrun
}

// torchPlace returns the place that the variables of torchrun and --local_rank describe.
func torchPlace(rank int) (place, error) {
	p, err := kubePlace(place{}, true)
	if err != nil {
		return place{}, err
	}
	value := os.Getenv(kube.VarTorchLocalRank)
	if rank < 0 || rank > maxLocalRank || value != "" && rank != p.pod.Local {
		return place{}, call.Usage("--local_rank %d: want the number that %s=%s gives, or leave --local_rank out",
			rank, kube.VarTorchLocalRank, value)
	}
	p.pod.Local = rank
	p.site = p.pod.Site()
	return p, nil
}

// kubePlace returns the place that the variables of a pod describe, or p without such
// variables. asked reports that the user asked for Kubernetes.
func kubePlace(p place, asked bool) (place, error) {
	if !asked && kube.Where(os.LookupEnv) == kube.Outside {
		if index := os.Getenv(kube.VarCompletionIndex); index != "" && p.hint == "" {
			p.hint = fmt.Sprintf("this is pod %s of an Indexed Job, and %s does not name the other pods, so its nodes run alone: "+
				"set %s to all pods, such as dqn-[0-3].dqn, or give --platform local", index, kube.VarNodes, kube.VarNodes)
		}
		return p, nil
	}
	pod, err := kube.Parse(os.LookupEnv)
	if err != nil {
		return place{}, call.UsageError{Err: err}
	}
	if pod.NeedsOwn() {
		if pod.Own, err = ownAddress(); err != nil {
			return place{}, call.Usage("%s is not set, and this machine has no address that other machines can dial: %w", kube.VarPodIP, err)
		}
	}
	return place{pod: &pod, site: pod.Site()}, nil
}

// ownAddress returns the first address of this machine that other machines may reach.
func ownAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("only loopback")
}

// maxLocalRank bounds --local_rank.
const maxLocalRank = 1023

// checkPlatform checks the flags that placeOf reads.
func checkPlatform(ctx *urfave.Context) error {
	platform := flags.Platform(ctx)
	rank, several := ctx.Int("local_rank"), ctx.IsSet("local_rank") && !byTorchrun(platform)
	switch {
	case platform != "" && platform != "local" && platform != "slurm" && platform != "kubernetes":
		return fmt.Errorf("--platform %q: want local, slurm or kubernetes", platform)
	case several && platform == "kubernetes":
		return errors.New("--local_rank: the variables of a pod give its number: leave --local_rank out with --platform kubernetes")
	case several && platform == "slurm":
		return errors.New("--local_rank: Slurm gives each task its number: leave --local_rank out with --platform slurm")
	case several && (rank < 0 || rank > maxLocalRank):
		return fmt.Errorf("--local_rank %d: want a number from 0 to %d", rank, maxLocalRank)
	}
	return nil
}

// slurmPlace returns the place that Slurm's variables describe. asked reports that the
// user asked for Slurm.
func slurmPlace(asked bool) (place, error) {
	p := place{slurm: slurm.Where(os.LookupEnv)}
	p.restarts, _ = strconv.Atoi(os.Getenv(slurm.VarRestarts)) // Parse checks it
	if p.slurm == slurm.Task || asked {
		step, err := slurm.Parse(os.LookupEnv)
		if err != nil {
			return place{}, call.UsageError{Err: err}
		}
		p.step, p.site = &step, step.Site()
	} else if tasks := os.Getenv("SLURM_NTASKS"); p.slurm == slurm.Allocation && tasks != "" && tasks != "1" {
		p.hint = fmt.Sprintf("this is job %s of Slurm, outside of its %s tasks, so the nodes run alone on this host: srun ditask ... runs "+
			"them in the tasks", os.Getenv(slurm.VarJobID), tasks)
	}
	return p, nil
}

// advice returns advice for a job that ended because of a wrong token.
func (p place) advice(r launch.Result) string {
	if !p.keyed || r.First == nil || !strings.Contains(r.First.Error, "refused (token)") {
		return ""
	}
	return "the hosts have different keys for the job's token, as without a shared home folder: set " +
		control.VarToken + " to a random text before srun, as ditask slurm script does"
}

// first reports whether this launcher prints the messages of the whole job.
func (p place) first() bool {
	return (p.step == nil || p.step.ProcID == 0) && (p.pod == nil || p.pod.Rank == 0)
}

// launchers returns the number of launchers that the platform gives the job, or 1.
func (p place) launchers() int {
	switch {
	case p.step != nil:
		return p.step.Tasks
	case p.pod != nil:
		return p.pod.Size
	}
	return 1
}

// located returns p with addresses instead of host names that do not resolve here. Names
// in Slurm's configuration need not resolve.
func (p place) located(ctx context.Context) (place, error) {
	if p.step == nil || p.site.Rendezvous == nil {
		return p, nil
	}
	launchers := append([]placement.Launcher(nil), p.site.Launchers...)
	r := *p.site.Rendezvous
	p.site.Launchers, p.site.Rendezvous = launchers, &r
	for _, host := range []*string{&r.Host, &launchers[p.site.Rank].Host, &launchers[0].Host} {
		addr, err := hostAddress(ctx, *host)
		if err != nil {
			return p, fmt.Errorf("%s=%q: %w", slurm.VarNodeList, os.Getenv(slurm.VarNodeList), err)
		}
		*host = addr
	}
	return p, nil
}

// lookupTime bounds each lookup of a name.
const lookupTime = 20 * time.Second

// hostAddress returns the address to dial for a host of Slurm: its name, if that
// resolves, or else the address that Slurm uses.
func hostAddress(ctx context.Context, name string) (string, error) {
	if name == "" || net.ParseIP(name) != nil {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	_, err := net.DefaultResolver.LookupHost(ctx, name)
	if err == nil {
		return name, nil
	}
	fault := fmt.Errorf("host %s: %w", name, err)
	out, err := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "node", name).Output()
	if err != nil {
		return "", fmt.Errorf("%w; scontrol show node %s does not print its address either (%w): give the host a name that resolves", fault,
			name, err)
	}
	m := regexp.MustCompile(`\bNodeAddr=(\S+)`).FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%w; scontrol show node %s does not print its address either: give the host a name that resolves", fault, name)
	}
	addr := string(m[1])
	if _, err := net.DefaultResolver.LookupHost(ctx, addr); err != nil {
		return "", fmt.Errorf("%w; its NodeAddr %s does not resolve either (%w): give the host a name that resolves", fault, addr, err)
	}
	return addr, nil
}

// Several reports whether the flags and variables give the job several launchers.
func Several(ctx *urfave.Context) bool {
	p, err := placeOf(ctx)
	return err == nil && (p.step != nil || p.pod != nil || ctx.IsSet("local_rank") || ctx.IsSet("node-ids") || ctx.IsSet("attach-to"))
}
