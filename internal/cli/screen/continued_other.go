//go:build !unix

package screen

import "os"

// continued has nothing to tell: processes are not stopped here.
func continued() (again <-chan os.Signal, forget func()) { return nil, func() {} }

func background(*os.File) bool { return false }
