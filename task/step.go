package task

import (
	"context"
	"fmt"
)

// step runs the chain once, counts it and renews the context.
func (t *Task[C]) step(ctx context.Context) error {
	if err := t.runChain(ctx); err != nil {
		return err
	}
	n := t.steps.Add(1)
	if n >= t.max {
		t.en.succeed("max steps") // an error that a middleware took has kept it from turn
	}
	t.renewal.renew()
	return nil
}

func (t *Task[C]) runChain(ctx context.Context) (err error) {
	f, returned := t.frame, false
	defer catch(ctx, func() string { return f.links[f.at].name }, &err, &returned, t.en.exited)
	if t.en.cfg.async {
		err = fanOut(ctx, f.c, f.links, f.rest, true)
	} else {
		f.origin = -1
		err = f.named(f.run(ctx, 0))
	}
	returned = true
	if err != nil {
		return fmt.Errorf("step %d: %w", t.steps.Load()+1, err)
	}
	return nil
}
