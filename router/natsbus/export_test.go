package natsbus

type connType = conn

// Limit lowers what may wait in the client for the carrier's connections.
func (c *Carrier) Limit(messages, bytes int) error {
	c.mu.Lock()
	sub := c.sub
	c.mu.Unlock()
	return sub.SetPendingLimits(messages, bytes)
}

// Inject publishes raw bytes to the other end of a connection, or to this one.
func Inject(conn any, here bool, raw []byte) error {
	k := conn.(*connType)
	to := k.peer
	if here {
		to = k.own
	}
	return k.nc.Publish(to, raw)
}

// DataMessage is a data message with that number.
func DataMessage(number uint64, body string) []byte {
	return append(appendHead(nil, head{kind: kindData, number: number}), body...)
}
