package task

// Peers returns the other nodes of the job that are connected now; nil on a lone node
// and before the task is started. Their labels include their roles.
func (t *Task[C]) Peers() []Peer {
	if t.en.bus == nil || t.en.state.Load() != started {
		return nil
	}
	return t.en.bus.Peers()
}
