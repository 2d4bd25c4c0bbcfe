// Package router carries messages between the nodes of a job: in order, exactly
// once, with bounded memory, over connections that may break.
//
//	r := router.New(router.Config{
//		Job: "j1", Token: secret, Node: 2, Expect: 3,
//		Transport: socket.New(socket.Config{}), Listen: "unix:///run/j1/n2.sock",
//		Attach:  []string{"unix:///run/j1/n0.sock", "unix:///run/j1/n1.sock"},
//	})
//	greeting, err := r.Channel(router.Spec{Name: "greeting"}, onGreeting)
//	greeting.Listen(true)
//	err = r.Start(ctx, []string{"collector"}) // returns when all three are ready
//	_, err = greeting.Send(ctx, router.Bytes("hello"), nil)
//	err = errors.Join(r.Drain(ctx, true), r.Close())
//
// # Two layers
//
// A [Transport] makes connections, nothing more: an ordered pipe of bytes that
// delivers all of them or breaks. Everything that is promised below comes from
// one delivery layer above it, the session between two nodes, so every transport
// gives the same promises.
//
// # What a session promises
//
// Messages of one sender arrive in the order in which they were sent, over all
// events; each arrives once. A message over [Config.ChunkBytes] is cut into
// chunks between which other messages pass, and is delivered with its last
// chunk: it keeps its place among the messages of its own event, while smaller
// messages of other events may pass it. That is what keeps a transfer of 64 MiB
// from stalling anything.
//
// A message stays in the sender's log until the receiver has acknowledged it.
// When a connection breaks, the node that dialled it dials again, the two
// report the frames that they have received, and the rest is sent again. A peer
// that stays away for longer than [Config.PeerTimeout] is lost: sends that wait
// for it end with a [PeerError] that has the number of messages which it did not
// acknowledge.
//
// Each event has a window at each receiver. The receiver gives room back when
// the listener has had a message, not when it has arrived, so a slow listener
// blocks only its senders, and memory stays bounded.
//
// # Concurrency
//
// All methods are safe for concurrent use. A session has two goroutines for
// each connection, a reader and a writer; a Router has one that accepts, one
// that keeps time, and one for each address that it dials. [Router.Close] returns
// when all have ended. Deliver functions are called by readers and must not
// block.
//
// # Wire
//
// docs/wire.md describes the handshake and the frames.
package router
