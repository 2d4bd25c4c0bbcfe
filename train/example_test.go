package train_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/train"
)

// A preset has the settings of an algorithm for one environment, with their source.
func ExampleFindPreset() {
	p, err := train.FindPreset("ppo/CartPole-v1/cleanrl")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Algorithm(), p.Env(), p.Settings, p.Threshold)
	// Output: ppo CartPole-v1 CleanRL's ppo.py 475
}

// A file in YAML is read strictly: each unknown key is an error that names the nearest.
func ExampleReadFile() {
	f, err := train.ReadFile("ppo.yaml", strings.NewReader("algo: ppo\nenv: CartPole-v1\nlearning_rat: 0.001\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := train.New(train.Algorithms(), "ppo")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Apply(f))
	// Output: ppo.yaml:3: unknown key "learning_rat" (did you mean learning_rate?): see ditask train ppo --help
}

// The same as "ditask train qlearning --env CliffWalking-v1 --steps 20000", in a program.
func ExampleConfig_Run() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := train.New(train.Algorithms(), "qlearning")
	if err != nil {
		fmt.Println(err)
		return
	}
	for key, value := range map[string]string{"env": "CliffWalking-v1", "steps": "20000"} {
		if err := c.Set(key, value, "example"); err != nil {
			fmt.Println(err)
		}
	}
	cfg := parallel.Config{Dir: dir, Seed: 1, Logger: slog.New(slog.DiscardHandler)}
	err = parallel.Run(context.Background(), cfg, func(ctx context.Context, node *parallel.Node) error {
		return c.Run(ctx, node, train.Output{})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	trained, err := train.Load(context.Background(), train.Algorithms(), dir, train.Best)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trained.Close()
	episodes, err := trained.Episodes(context.Background(), 1, 1, true)
	fmt.Println(episodes, err)
	// Output: [{-13 13}] <nil>
}
