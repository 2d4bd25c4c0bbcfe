package memory_test

import (
	"fmt"
	"testing"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(topology router.Topology) routertest.Setup {
	return routertest.Setup{
		Carrier:  func(testing.TB) router.Carrier { return memory.New() },
		Addr:     func(_ testing.TB, node int) string { return fmt.Sprintf("mem://%d", node) },
		Topology: topology,
	}
}

func TestMemory(t *testing.T)     { routertest.Run(t, setup(router.Mesh)) }
func TestMemoryStar(t *testing.T) { routertest.Run(t, setup(router.Star)) }
