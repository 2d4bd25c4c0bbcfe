// Package cli is the ditask command: the table of its commands, and those that are
// small.
//
//	func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
//
// "ditask doctor" checks the machine, "ditask tls" makes certificates, "ditask trace"
// shows what a job has recorded; "ditask version" prints the version, and "ditask
// completion" the completion script of a shell. The others are packages below this one:
//
//	job     runs a job, which is "ditask" itself, and plans one: "ditask plan"
//	build   builds the program of a job, and has "ditask build"
//	slurm   "ditask slurm"
//	k8s     "ditask k8s"
//	screen  the live table of a job
//	token   tokens of jobs to which none was given
//	flags   the flags of a job, which most commands take
//	call    outputs, faults and exit codes
//
// # Concurrency and errors
//
// Main is called once in a process: it handles the process's signals while a
// job runs. It reads the environment and the working folder. Faults of the user are
// one line each on stderr, and exit code 2; what went wrong otherwise is exit
// code 1, or the code of the node that failed first.
package cli
