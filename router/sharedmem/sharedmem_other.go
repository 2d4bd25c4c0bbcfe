//go:build !linux || !(amd64 || arm64)

package sharedmem

import "os"

func create(string, int) (*os.File, []byte, error) { return nil, nil, ErrUnsupported }

func openShared(Ref, int) (string, []byte, error) { return "", nil, ErrUnsupported }

func startOf(int) (string, error) { return "", ErrUnsupported }

func unmap([]byte) error { return nil }

func reserve(*os.File, int, int) error { return ErrUnsupported }
