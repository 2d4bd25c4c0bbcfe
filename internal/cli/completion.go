package cli

import (
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// shells are those that completion knows.
func shells() []string { return []string{"bash", "zsh", "fish"} }

// choices are the values of the flags that have few, and "files" for those
// that are paths.
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
		return "local slurm"
	case "tls":
		return "auto"
	case "package", "platform-spec", "dir", "log-dir", "slurm-logs", "script", "trace", "token-file", "tls-cert", "tls-key", "tls-ca", "nats-creds", "nats-nkey":
		return "files"
	}
	return ""
}

// completion prints the script of a shell, which needs nothing of ditask at
// run time.
func (c *command) completion(ctx *urfave.Context) error {
	if ctx.NArg() != 1 {
		return usage("ditask completion: want one of %s", strings.Join(shells(), ", "))
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
		return usage("ditask completion %q: want one of %s", shell, strings.Join(shells(), ", "))
	}
	_, err := fmt.Fprint(c.stdout, script)
	return err
}

// bash is the script for bash: values after a flag that has choices, else
// flags and commands.
func bash() string {
	var cases strings.Builder
	var flags []string
	for _, f := range jobFlags() {
		names := dashed(f.Names())
		flags = append(flags, names...)
		switch values := choices(f.Names()[0]); values {
		case "":
		case "files":
			fmt.Fprintf(&cases, "    %s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", strings.Join(names, "|"))
		default:
			fmt.Fprintf(&cases, "    %s) words=\"%s\" ;;\n", strings.Join(names, "|"), values)
		}
	}
	return fmt.Sprintf(`_ditask() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words
  case "$prev" in
%s    completion) words="%s" ;;
    *)
      words="%s --json --help --version"
      [[ $COMP_CWORD == 1 ]] && words="plan doctor build slurm tls version completion $words"
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _ditask ditask
`, cases.String(), strings.Join(shells(), " "), strings.Join(flags, " "))
}

// fish is the script for fish.
func fish() string {
	var b strings.Builder
	b.WriteString("complete -c ditask -f\n")
	for _, cmd := range (&command{}).commands() {
		fmt.Fprintf(&b, "complete -c ditask -n __fish_use_subcommand -a %s -d '%s'\n", cmd.Name, cmd.Usage)
	}
	fmt.Fprintf(&b, "complete -c ditask -n '__fish_seen_subcommand_from completion' -a '%s'\n", strings.Join(shells(), " "))
	for _, f := range jobFlags() {
		b.WriteString("complete -c ditask")
		for _, name := range f.Names() {
			if len(name) == 1 {
				fmt.Fprintf(&b, " -s %s", name)
			} else {
				fmt.Fprintf(&b, " -l %s", name)
			}
		}
		switch values := choices(f.Names()[0]); {
		case values == "files":
			b.WriteString(" -rF")
		case values != "":
			fmt.Fprintf(&b, " -xa '%s'", values)
		default:
			if doc, ok := f.(urfave.DocGenerationFlag); ok && doc.TakesValue() {
				b.WriteString(" -x")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
