package export

import (
	"fmt"
	"io"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Safetensors writes the tensors that the policy acts with, in the order in which they are used: its weights
// without those of critics, targets and noise, and the constants of its computation such as the bounds of
// actions. Names and shapes are those of the ONNX file's initialisers. The metadata are those of meta.
func Safetensors(w io.Writer, p policies.Policy, meta Meta) error {
	g, err := Graph(p)
	if err != nil {
		return err
	}
	properties, err := meta.properties(p)
	if err != nil {
		return fmt.Errorf("export safetensors: %w", err)
	}
	var a nn.Archive
	for _, x := range properties {
		a.SetText(x.key, x.value)
	}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Op == graph.Constant {
			a.Tensors = append(a.Tensors, nn.Tensor{Name: n.Name, Shape: n.Shape, Data: n.Data})
		}
	}
	text, err := a.AppendBinary(nil)
	if err != nil {
		return fmt.Errorf("export safetensors: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("export safetensors: %w", err)
	}
	return nil
}
