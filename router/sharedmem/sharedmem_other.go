//go:build !linux || !(amd64 || arm64)

package sharedmem

import "os"

func create(int) (*os.File, []byte, error) { return nil, nil, ErrUnsupported }

func mapShared(*os.File, int) ([]byte, error) { return nil, ErrUnsupported }

func unmap([]byte) error { return nil }

func reserve(*os.File, int, int) error { return ErrUnsupported }
