package serve

// Waiting returns the number of requests that wait for the policy.
func (s *Server) Waiting() int {
	s.actor.mu.Lock()
	defer s.actor.mu.Unlock()
	return len(s.actor.waiting)
}
