package data_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
)

// Three steps, of which the last one ends the episode: there is no future after it.
func ExampleGAE() {
	u := &data.Unroll{
		Length: 3, Rewards: []float32{1, 1, 1}, Values: []float32{0.5, 0.6, 0.7}, Bootstrap: make([]float32, 3),
		Terminated: []uint8{0, 0, 1}, Truncated: make([]uint8, 3),
	}
	advantages, targets := make([]float32, 3), make([]float32, 3)
	data.GAE(advantages, targets, u, 0.99, 0.95)
	fmt.Printf("%.5f\n%.5f\n", advantages, targets)

	// The same three steps, cut by a time limit where the next observation has the value 0.8.
	u.Terminated, u.Truncated, u.Bootstrap = make([]uint8, 3), []uint8{0, 0, 1}, []float32{0, 0, 0.8}
	data.GAE(advantages, targets, u, 0.99, 0.95)
	fmt.Printf("%.5f\n%.5f\n", advantages, targets)
	// Output:
	// [2.38733 1.37515 0.30000]
	// [2.88733 1.97515 1.00000]
	// [3.08788 2.12003 1.09200]
	// [3.58788 2.72003 1.79200]
}

// The ratios are of the present policy to the one that chose the actions.
func ExampleVTrace() {
	u := &data.Unroll{
		Length: 3, Rewards: []float32{1, 1, 1}, Values: []float32{0.5, 0.6, 0.7}, Bootstrap: []float32{0, 0, 0.8},
		Terminated: make([]uint8, 3), Truncated: make([]uint8, 3),
	}
	targets, advantages := make([]float32, 3), make([]float32, 3)
	data.VTrace(targets, advantages, u, []float32{1.5, 0.5, 1}, data.VTraceConfig{Gamma: 0.99})
	fmt.Printf("%.5f\n%.5f\n", targets, advantages)
	// Output:
	// [2.67017 1.68704 1.79200]
	// [2.17017 1.08704 1.09200]
}

func ExampleStandardize() {
	v := []float32{1, 2, 3, 4}
	data.Standardize(v)
	fmt.Printf("%.4f\n", v)
	// Output: [-1.3416 -0.4472 0.4472 1.3416]
}

// Price tells what a buffer takes before it is made.
func ExamplePrice() {
	const pixels, mib = 84 * 84, 1 << 20
	fmt.Println(data.Price(1_000_000, policies.TransitionColumns(4, 1)...)/mib, "MiB")
	fmt.Println(data.Price(1_000_000, policies.TransitionColumns(pixels, 1)...)/mib, "MiB")
	// Output:
	// 48 MiB
	// 53851 MiB
}

// Rows of a greater priority are drawn more often, and weigh less.
func ExamplePrioritised() {
	buf := data.NewPrioritised(data.PrioritisedConfig{UniformConfig: data.UniformConfig{Capacity: 1000, Seed: 7}})
	if err := buf.Add(transitions(4)); err != nil {
		fmt.Println(err)
	}
	if err := buf.Update([]uint64{0, 1, 2, 3}, []float32{0, 0, 0, 1}); err != nil {
		fmt.Println(err)
	}
	var b policies.Batch
	if err := buf.Sample(&b, 4, 0.4); err != nil {
		fmt.Println(err)
	}
	fmt.Println(b.Words(policies.Index))
	// Output: [3 3 3 3]
}

// A file of transitions is what a policy that learns offline is trained with.
func ExampleWriteDataset() {
	folder, err := os.MkdirTemp("", "dataset")
	if err != nil {
		fmt.Println(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "random"+data.DatasetExt)
	info := data.DatasetInfo{Env: "CartPole-v1", Policy: "random", Episodes: 1, Return: 3}
	if err := data.WriteDataset(path, info, transitions(3)); err != nil {
		fmt.Println(err)
	}
	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{folder}, Batch: 8})
	if err != nil {
		fmt.Println(err)
	}
	var b policies.Batch
	fmt.Println(d.Len(), "rows,", d.Info().Env)
	fmt.Println(d.Next(&b), b.N)
	// Output:
	// 3 rows, CartPole-v1
	// true 8
}

// transitions are n rows of an environment with four numbers as its observation.
func transitions(n int) *policies.Batch {
	b := &policies.Batch{}
	b.Init(policies.TransitionColumns(4, 1)...)
	for i := range n {
		o := float32(i)
		b.Append(policies.Transition{Obs: []float32{o, 0, 0, 0}, Action: []float32{1}, Reward: 1, NextObs: []float32{o + 1, 0, 0, 0}, Steps: 1})
	}
	return b
}
