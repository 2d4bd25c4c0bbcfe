//go:build !linux || !(amd64 || arm64)

package mesh_test

const varProcess = "MESH_TEST_PROCESS"

func otherProcess() error { return nil }
