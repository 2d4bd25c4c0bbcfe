// Package cli is the ditask command: the table of its commands, and the small
// commands.
//
//	func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
//
// "ditask doctor" checks the machine, "ditask tls" makes certificates, "ditask trace"
// shows the records of a job, "ditask version" prints the version, and "ditask
// completion" prints the completion script of a shell. The packages below this one have
// the other commands and their parts:
//
//	job     runs a job, which is "ditask" itself, and plans one: "ditask plan"
//	build   builds the program of a job, and has "ditask build"
//	slurm   "ditask slurm"
//	k8s     "ditask k8s"
//	screen  the live table of a job
//	token   tokens of jobs without a given token
//	flags   the flags of a job, which most commands take
//	call    outputs, faults and exit codes
//
// # Concurrency and errors
//
// Main is called once in a process: it handles the process's signals while a
// job runs. It reads the environment and the working folder. Each usage error is one
// line on stderr, with exit code 2. Any other failure has exit code 1, or the code of the
// node that failed first.
package cli
