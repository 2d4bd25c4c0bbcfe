// Package cli is the ditask command: it turns flags into a plan and a plan into
// running nodes, and shows how they are doing.
//
//	func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
//
// "ditask" itself runs a job; "ditask plan" prints who would run where;
// "ditask doctor" checks the machine; "ditask version" and "ditask completion"
// say what their names say.
//
// # Concurrency and errors
//
// Main is called once in a process: it handles the process's signals while a
// job runs. It reads the environment and the working folder. Faults of the user are
// one line each on stderr, and exit code 2; what went wrong otherwise is exit
// code 1, or the code of the node that failed first.
package cli
