package cli

import (
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
)

// shells returns the shells that have a completion script.
func shells() []string { return []string{"bash", "zsh", "fish"} }

// choices returns the values of a flag that has few, or "files" for a path.
func choices(flag string) string {
	switch flag {
	case "topology":
		return "mesh star alone"
	case "protocol":
		return "tcp ipc"
	case "mq-type":
		return "mesh nats redis"
	case "log-format":
		return "text json"
	case "platform":
		return "local slurm kubernetes"
	case "kind":
		return "job jobset dijob"
	case "bus":
		return "nats redis"
	case "on-interrupt":
		return "ask cancel leave"
	case "tls":
		return "auto"
	case "package", "platform-spec", "dir", "log-dir", "slurm-logs", "script", "trace", "token-file", "tls-cert", "tls-key", "tls-ca",
		"nats-creds", "nats-nkey", "kubeconfig", "kubectl", "kustomize", "helm":
		return "files"
	}
	return ""
}

// completion prints the script of a shell. The script does not call ditask.
func (c command) completion(ctx *urfave.Context) error {
	if ctx.NArg() != 1 {
		return call.Usage("ditask completion: want one of %s", strings.Join(shells(), ", "))
	}
	var script string
	switch shell := ctx.Args().First(); shell {
	case "bash":
		script = bash()
	case "zsh":
		script = "#compdef ditask\nautoload -U +X bashcompinit && bashcompinit\n" + bash()
	case "fish":
		script = fish()
	default:
		return call.Usage("ditask completion %q: want one of %s", shell, strings.Join(shells(), ", "))
	}
	_, err := fmt.Fprint(c.Stdout, script)
	return err
}

// commandFlags returns the flags of a command and its subcommands, each once, without
// the flags of a job.
func commandFlags(cmd *urfave.Command) []urfave.Flag {
	var out []urfave.Flag
	known := map[string]bool{}
	for _, f := range flags.Job() {
		known[f.Names()[0]] = true
	}
	for _, cmd := range slices.Concat([]*urfave.Command{cmd}, cmd.Subcommands) {
		for _, f := range cmd.Flags {
			if name := f.Names()[0]; !known[name] {
				known[name] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// bash returns the script for bash. It completes values after a flag that has choices,
// and flags and commands elsewhere.
func bash() string {
	var values, commands strings.Builder
	var ofJob, top []string
	seen := map[string]bool{}
	takes := func(all []urfave.Flag) {
		for _, f := range all {
			name := f.Names()[0]
			if seen[name] {
				continue
			}
			seen[name] = true
			switch names, words := strings.Join(dashed(f.Names()), "|"), choices(name); words {
			case "":
			case "files":
				fmt.Fprintf(&values, "    %s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", names)
			default:
				fmt.Fprintf(&values, "    %s) words=\"%s\" ;;\n", names, words)
			}
		}
	}
	takes(flags.Job())
	for _, f := range flags.Job() {
		ofJob = append(ofJob, dashed(f.Names())...)
	}
	for _, cmd := range (command{&call.Call{}}).commands() {
		top = append(top, cmd.Name)
		if len(cmd.Subcommands) == 0 {
			continue
		}
		var below, own []string
		for _, sub := range cmd.Subcommands {
			below = append(below, sub.Name)
		}
		for _, f := range commandFlags(cmd) {
			own = append(own, dashed(f.Names())...)
		}
		takes(commandFlags(cmd))
		fmt.Fprintf(&commands, "        \"2 %s\") words=\"%s --help\" ;;\n", cmd.Name, strings.Join(below, " "))
		fmt.Fprintf(&commands, "        *\" %s\") words=\"%s $words\" ;;\n", cmd.Name, strings.Join(own, " "))
	}
	return fmt.Sprintf(`_ditask() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words
  case "$prev" in
%s    completion) words="%s" ;;
    *)
      words="%s --json --help --version"
      case "$COMP_CWORD ${COMP_WORDS[1]}" in
        "1 "*) words="%s $words" ;;
%s      esac
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _ditask ditask
`, values.String(), strings.Join(shells(), " "), strings.Join(ofJob, " "), strings.Join(top, " "), commands.String())
}

// fish returns the script for fish.
func fish() string {
	var b strings.Builder
	b.WriteString("complete -c ditask -f\n")
	for _, cmd := range (command{&call.Call{}}).commands() {
		fmt.Fprintf(&b, "complete -c ditask -n __fish_use_subcommand -a %s -d '%s'\n", cmd.Name, cmd.Usage)
	}
	fmt.Fprintf(&b, "complete -c ditask -n '__fish_seen_subcommand_from completion' -a '%s'\n", strings.Join(shells(), " "))
	for _, f := range flags.Job() {
		fishFlag(&b, "", f)
	}
	for _, cmd := range (command{&call.Call{}}).commands() {
		if len(cmd.Subcommands) == 0 {
			continue
		}
		var below []string
		for _, sub := range cmd.Subcommands {
			below = append(below, sub.Name)
		}
		words := strings.Join(below, " ")
		fmt.Fprintf(&b, "complete -c ditask -n '__fish_seen_subcommand_from %s; and not __fish_seen_subcommand_from %s' -a '%s'\n", cmd.Name,
			words, words)
		for _, f := range commandFlags(cmd) {
			fishFlag(&b, " -n '__fish_seen_subcommand_from "+cmd.Name+"'", f)
		}
	}
	return b.String()
}

// fishFlag declares a flag that is offered under a condition.
func fishFlag(b *strings.Builder, condition string, f urfave.Flag) {
	b.WriteString("complete -c ditask" + condition)
	for _, name := range f.Names() {
		if len(name) == 1 {
			fmt.Fprintf(b, " -s %s", name)
		} else {
			fmt.Fprintf(b, " -l %s", name)
		}
	}
	switch values := choices(f.Names()[0]); {
	case values == "files":
		b.WriteString(" -rF")
	case values != "":
		fmt.Fprintf(b, " -xa '%s'", values)
	default:
		if doc, ok := f.(urfave.DocGenerationFlag); ok && doc.TakesValue() {
			b.WriteString(" -x")
		}
	}
	b.WriteString("\n")
}
