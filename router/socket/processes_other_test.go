//go:build !linux || !(amd64 || arm64)

package socket_test

const varProcess = "MESH_TEST_PROCESS"

func otherProcess() error { return nil }
