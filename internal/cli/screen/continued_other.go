//go:build !unix

package screen

import "os"

// continued never signals: this system does not stop processes.
func continued() (again <-chan os.Signal, forget func()) { return nil, func() {} }

func background(*os.File) bool { return false }
