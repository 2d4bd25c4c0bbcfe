//go:build !unix

package gym

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// supported reports that a process cannot inherit pipes here.
const supported = false

func sysProcAttr() *syscall.SysProcAttr { return nil }

func killGroup(int) {}

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return nil }

func signaled(*os.ProcessState) (name string, ok bool) { return "", false }

func unpolled(*os.File) (*os.File, syscall.RawConn, error) { return nil, nil, errors.ErrUnsupported }

func readable(uintptr, time.Duration) bool { return false }
