package task

// deque is the queue of tickets: a ring that grows and is never copied otherwise.
type deque struct {
	ring []ticket // its length is a power of two, or 0
	head int
	n    int
}

func (q *deque) empty() bool { return q.n == 0 }

func (q *deque) front() *ticket { return &q.ring[q.head] }

func (q *deque) pop() {
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
}

// push adds one message of box at the back.
func (q *deque) push(box *mailbox) {
	if q.n > 0 {
		if last := &q.ring[(q.head+q.n-1)&(len(q.ring)-1)]; last.box == box {
			last.n++
			return
		}
	}
	q.grow()
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = ticket{box: box, n: 1}
	q.n++
}

// unpop puts t back to the front.
func (q *deque) unpop(t ticket) {
	q.grow()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.ring[q.head] = t
	q.n++
}

func (q *deque) grow() {
	if q.n < len(q.ring) {
		return
	}
	ring := make([]ticket, max(16, 2*len(q.ring)))
	for i := range q.n {
		ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
	}
	q.ring, q.head = ring, 0
}
