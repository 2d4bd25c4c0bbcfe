// Package natsbus connects nodes through a NATS server, or a cluster of them:
// nodes that can all reach the server need not reach each other.
//
//	c, err := natsbus.New(natsbus.Config{URL: "nats://nats.example:4222", Job: "j1"})
//	defer c.Close()
//	r, err := router.New(router.Config{Carrier: c, Listen: "bus://node.1", Attach: []string{"bus://node.0"}})
//
// Addresses are "bus://node.<id>": a name within the job, not a place. Where the
// server is stands in the [Config].
//
// NATS promises to deliver a message at most once. The promises of package router
// come from its sessions, which need no more of a connection than that it
// delivers all bytes in order or breaks. So a connection here numbers its
// messages, and breaks when one is missing; the session above dials again and
// goes on after the last frame that was received. Nothing is stored in the
// server: no JetStream is needed.
//
// # The wire
//
// All subjects of a job begin with "ditask.<job>.", where a byte of the job's id
// that is not a letter, a digit, "_" or "-" is "~" and two hexadecimal digits. A
// user of the server who is to take part in the job j1, and in no other, needs
//
//	permissions: { publish: "ditask.j1.>", subscribe: "ditask.j1.>" }
//
// and can then also read and disturb what the job's nodes say to each other, as
// whoever owns a switch can with tcp: give TLS to the way to the server, and each
// job that must not trust the others a user or an account of its own.
//
// A node has two subscriptions, however many connections it has:
//
//	ditask.<job>.dial.<node>      who wants to connect says so here
//	ditask.<job>.conn.<inbox>.*   messages of connections; <inbox> is random, and * names this end of one
//
// Each message begins with a head of 17 bytes: its kind (1), its number (8) and
// how much the sender has consumed (8), little-endian. Its reply subject is the
// sender's own end, so that a server that knows nobody at the other end says so
// ("no responders"), and the connection breaks at once.
//
//	kind  name    number  body
//	1     dial    0       version (1: 1), window (4), words that name the sender
//	2     accept  0       version (1: 1), window (4)
//	3     data    n       bytes
//	4     ack     n       none
//	5     fin     n       none: the sender has closed the connection
//	6     reset   0       why, in words: there is no such connection, or it broke
//
// Both sides number data, ack and fin together, from 1. A number that is not the
// next one breaks the connection at both ends. After fin the other side reads what
// came before it, and then end-of-file.
//
// A message takes the size of its body and 256 bytes more of the receiver's
// window, until the receiver has read it. It tells its total with whatever it
// sends, and in an ack when a quarter of the window has been read. A piece of data
// is at most 256 KiB, a quarter of the window, and what the server takes.
//
// # The server of a job
//
// With [Config.Key], the server is one of package embedded with the same key. Each
// connection with it begins, under TLS if there is any, with a conversation in which
// both sides prove that they know the key, by HMACs over fresh nonces: 40 bytes each
// way, the client's proof, and the server's. Only then is NATS spoken. A process that
// has taken the server's address gets neither a login nor a subject; Stats.Unproved
// counts it. One that relays to the true server is not noticed without TLS.
//
// # Windows
//
// The server closes a client that it cannot write to when 64 MiB wait for it
// (max_pending). All peers of a node together must stay below, so a window is 48
// MiB for all of them, but between 256 KiB and 2 MiB for each.
//
// # Errors
//
// When the connection with the server is lost all connections through it break,
// and the client connects again by itself, to any server of Config.URL;
// [Carrier.Dial] waits for that. Servers of a cluster that are not in the list are
// not used, whatever a server says of them: a server, or a process that has taken
// the place of one, leads its clients nowhere else. Nothing is kept to be sent later. The
// connection is given up, too, when the server takes nothing of what is written for
// 3 s, and when it leaves two pings, 1.5 s apart, without an answer. A
// server that cannot be reached at first is tried for Config.ConnectTimeout, one that
// refuses this client is not.
//
// # Concurrency
//
// A [Carrier] is safe for concurrent use. It has one connection with the server,
// made at the first Listen or Dial. Its goroutines are those of package nats, and one
// that lets the other ends of closed connections know: Close ends them. Close of a
// connection waits for nothing; Read and Write may wait for the server for 3 s, whatever
// their deadlines.
package natsbus
