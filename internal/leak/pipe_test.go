package leak_test

import (
	"os"
	"os/exec"
)

// pipe hands the reading end of a pipe to cmd, as file descriptor 3.
func pipe(cmd *exec.Cmd) (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	cmd.ExtraFiles = []*os.File{r}
	return r, w, err
}
