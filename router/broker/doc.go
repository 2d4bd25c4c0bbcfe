// Package broker makes connections out of messages that a server carries: the streams of packages natsbus and redisbus.
//
//	h := broker.New(broker.Config{Broker: server, Inbox: broker.NewInbox(), Direct: true})
//	go h.Run()
//	l, err := h.Listen(ctx, "node.0")
//	c, err := other.Dial(ctx, "node.0")
//
// An adapter implements [Broker] and passes received messages to [Hub.Deliver]. The server may lose messages, or repeat them in
// order. Data are numbered by bytes, so a connection delivers all bytes in order or breaks with an error that names the missing
// bytes. The sessions of package router then dial again and continue where they were.
//
// # The wire
//
// A message is a head of 25 bytes and a body; integers are little-endian:
//
//	kind      1  what it is
//	to        8  the connection's id at the receiver
//	offset    8  bytes of data that went before it in this direction
//	consumed  8  what the sender of the message has returned of its window, in all; in dial and accept the version, 2
//
//	1 dial    id (8), window (4) and inbox (16) of the dialler, the word, and 0 and a name if it has one
//	2 accept  id (8), window (4) and inbox (16) of the listener
//	3 data    bytes
//	4 ack     nothing
//	5 fin     nothing: the sender has closed the connection
//	6 reset   the reason, in words: the connection has broken, or does not exist
//
// A message of data takes the size of its body and 256 bytes more of the receiver's window, until it has been read. Every
// message has the number of returned bytes; an ack follows when a quarter of the window was read. A body is at most a quarter of the
// window, less those 256 bytes.
//
// A dial or an accept of another version is refused with an error that names both. Version 1 had a different format for each server.
//
// # Concurrency
//
// A [Hub] and its connections are safe for concurrent use. Run is the only goroutine of a hub; it ends after the last
// [Hub.Release]. Deliver and Close of a connection do not wait, except that Close of the last user waits up to 2 s until the
// written data are published.
package broker
