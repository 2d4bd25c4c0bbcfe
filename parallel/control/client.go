package control

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel/metrics"
)

// patience is the time that Ready and Outcome wait for a launcher that does not
// read.
const patience = time.Second

// beatEvery is the interval of heartbeats of a ready node's Client.
const beatEvery = 2 * time.Second

// Client is a node's end of its control socket. It is safe for concurrent use. A Client without a
// launcher (Env.ControlFD is 0) accepts everything, sends nothing, and is never Gone.
//
// As soon as a Client notices that the launcher is gone, by reading or by writing, it removes the
// socket that the launcher would have removed.
type Client struct {
	file     *os.File      // nil without a launcher
	listen   string        // the node's address, which is removed with the launcher
	gone     chan struct{} // closed by read when the launcher is gone; nil without one
	sayBye   func()        // closes bye, once
	bye      chan struct{} // closed by read when the launcher has read all
	interval atomic.Int64
	beat     func()        // closes beating, once
	beating  chan struct{} // closed by Ready: the heart begins to beat
	halt     func()        // closes halted, once
	halted   chan struct{} // closed by Close: the heart stops
	heart    sync.WaitGroup
	asked    chan uint64 // 1: the newest request for metrics
	lost     chan []Lost // 1: all that were not taken yet, the newest of each node

	mu   sync.Mutex // guards the writing
	rest []byte     // the rest of a line that was written in part
}

// Open takes over the control socket that env names, and sends a hello there: so the launcher knows
// that the program is a node. It fails if the file descriptor is not open; the Client owns it from
// then on, and processes that this one starts do not inherit it. The caller closes the Client.
func Open(env Env) (*Client, error) {
	if env.ControlFD == 0 {
		return &Client{}, nil
	}
	file, err := inherit(env.ControlFD, "control")
	if err != nil {
		return nil, fmt.Errorf("open %s=%d: %w", VarControlFD, env.ControlFD, err)
	}
	c := NewClient(file, env.Listen)
	_ = c.write(Message{Type: TypeHello}, 0) // read notices a launcher that is gone
	return c, nil
}

// NewClient is a Client over one file of a Pair, which it owns from then on. listen is
// the address of the node's socket; empty: it has none.
func NewClient(file *os.File, listen string) *Client {
	c := &Client{
		file: file, listen: listen, gone: make(chan struct{}), bye: make(chan struct{}),
		beating: make(chan struct{}), halted: make(chan struct{}), asked: make(chan uint64, 1), lost: make(chan []Lost, 1),
	}
	c.sayBye = sync.OnceFunc(func() { close(c.bye) })
	c.beat = sync.OnceFunc(func() { close(c.beating) })
	c.halt = sync.OnceFunc(func() { close(c.halted) })
	c.heart.Go(c.live)
	go c.read()
	return c
}

// read ends when the launcher is gone, or at Close, which waits for it.
func (c *Client) read() {
	defer close(c.gone)
	r := NewReader(c.file)
	for bye := false; ; {
		m, err := r.Next()
		switch {
		case errors.Is(err, ErrMalformed):
		case bye && err != nil, errors.Is(err, os.ErrClosed): // by Close
			return
		case err != nil: // end-of-file, or a reset if the launcher had not read all
			RemoveSocket(c.listen)
			return
		case m.Type == TypeBye:
			bye = true
			c.sayBye()
		case m.Type == TypeInterval:
			c.interval.Store(int64(m.Interval))
		case m.Type == TypeMetrics:
			select {
			case <-c.asked: // no caller waits for the older one
			default:
			}
			c.asked <- m.Metrics.Seq // there is room: nothing else sends
		case m.Type == TypeLost:
			var before []Lost
			select {
			case before = <-c.lost:
			default:
			}
			before = slices.DeleteFunc(before, func(l Lost) bool { return l.Node == m.Lost.Node })
			c.lost <- append(before, *m.Lost) // there is room: nothing else sends
		}
	}
}

// live announces that the node lives, in whatever work it is: a launcher takes a ready and silent node
// for one that hangs. It ends at Close, or when the launcher is gone.
func (c *Client) live() {
	select {
	case <-c.beating:
	case <-c.halted:
		return
	case <-c.gone:
		return
	}
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = c.write(Message{Type: TypeAlive}, 0) // read notices a launcher that is gone
		case <-c.halted:
			return
		case <-c.gone:
			return
		}
	}
}

// Gone is closed when the launcher is gone, and also by Close. Without a
// launcher it is nil, and blocks forever.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Interval is the interval at which the launcher wants a status; 0: not known yet.
func (c *Client) Interval() time.Duration { return time.Duration(c.interval.Load()) }

// Ready means that the node is connected to those that it expects. From then on
// the Client sends a heartbeat every 2 s until Close.
func (c *Client) Ready() error {
	if c.file == nil {
		return nil
	}
	defer c.beat()
	return c.write(Message{Type: TypeReady}, patience)
}

// Status describes how the node is doing. If the launcher is too slow to take it at
// once it is dropped, without an error. Numbers that are not finite are sent
// as 0.
func (c *Client) Status(s Status) error {
	s.Rate, s.Lag = finite(s.Rate), finite(s.Lag)
	return c.write(Message{Type: TypeStatus, Status: &s}, 0)
}

// Asked has the number of the launcher's newest request for metrics, which is
// answered by [Client.Metrics]. Without a launcher it is nil, and blocks forever.
func (c *Client) Asked() <-chan uint64 { return c.asked }

// Lost has the other nodes of this launcher whose processes have ended without taking
// leave: all that were not received from the channel yet, and of each node the newest.
// Without a launcher it is nil, and blocks forever.
func (c *Client) Lost() <-chan []Lost { return c.lost }

// partBytes is about how long a line of samples is, below MaxLine whatever the
// last of them holds.
const partBytes = 8 << 10

// Metrics answers request seq, in as many lines as it takes.
func (c *Client) Metrics(seq uint64, samples []metrics.Sample) error {
	for {
		n, size := 0, 0
		for ; n < len(samples) && size < partBytes; n++ {
			s := &samples[n]
			s.Value = finite(s.Value)
			size += 48 + len(s.Name)
			for i, l := range s.Labels {
				s.Labels[i] = cut(l, maxText/8)
				size += 8 + len(s.Labels[i])
			}
		}
		err := c.write(Message{Type: TypeMetrics, Metrics: &Metrics{Seq: seq, Samples: samples[:n], Last: n == len(samples)}}, patience)
		if err != nil || n == len(samples) {
			return err
		}
		samples = samples[n:]
	}
}

// Outcome describes how the node ended. It is the last message of a node.
func (c *Client) Outcome(o Outcome) error {
	return c.write(Message{Type: TypeOutcome, Outcome: &o}, patience)
}

// Close waits, for a second at most, until the launcher has read everything, and frees the socket: so
// a node does not end unaware of a launcher that has just died. It returns when no goroutine of the
// Client runs any more.
func (c *Client) Close() error {
	if c.file == nil {
		return nil
	}
	c.halt()
	c.heart.Wait()
	if shutdownWrite(c.file) == nil {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-c.bye:
		case <-c.gone:
		case <-late.C:
		}
	}
	err := c.file.Close()
	<-c.gone
	return err
}

// write writes one line, after the rest of the one before. With no wait, it
// writes only what the socket takes at once: a line that was begun is kept and
// finished by the next write, one that was not is dropped.
func (c *Client) write(m Message, wait time.Duration) error {
	if c.file == nil {
		return nil
	}
	line, err := m.Append(nil)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(max(wait, time.Millisecond))
	if err := c.file.SetWriteDeadline(deadline); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if len(c.rest) > 0 {
		n, err := c.file.Write(c.rest)
		c.rest = c.rest[n:]
		if err != nil {
			return c.fault(err, wait)
		}
	}
	n, err := c.file.Write(line)
	if n > 0 {
		c.rest = line[n:]
	}
	return c.fault(err, wait)
}

// fault is err, unless it means only that a status found the socket full.
func (c *Client) fault(err error, wait time.Duration) error {
	if err == nil || wait == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		RemoveSocket(c.listen)
	}
	return fmt.Errorf("control socket: %w", err)
}

func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}
