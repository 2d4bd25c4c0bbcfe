// Package natsbus connects nodes through a NATS server, or a cluster of them:
// nodes that can all reach the server need not reach each other.
//
//	c, err := natsbus.New(natsbus.Config{URL: "nats://nats.example:4222", Job: "j1"})
//	defer c.Close()
//	r, err := router.New(router.Config{Transport: c, Listen: "bus://node.1", Attach: []string{"bus://node.0"}})
//
// Addresses are "bus://node.<id>": a name within the job, not a place. Where the
// server is stands in the [Config].
//
// NATS promises to deliver a message at most once. Connections are those of package
// broker, which number their bytes and break when some are missing; the session above
// dials again and continues after the last frame that was received. Nothing is stored in
// the server: no JetStream is needed.
//
// # The wire
//
// All subjects of a job begin with "ditask.<job>.", where a byte of the job's id
// that is not a letter, a digit, "_" or "-" is "~" and two hexadecimal digits. A
// user of the server that takes part in the job j1, and in no other, needs
//
//	permissions: { publish: "ditask.j1.>", subscribe: "ditask.j1.>" }
//
// and can then also read and disturb what the job's nodes say to each other, as
// the owner of a switch can with tcp: give TLS to the way to the server, and each
// job that must not trust the others a user or an account of its own.
//
// A node has two subscriptions, however many connections it has:
//
//	ditask.<job>.dial.<node>      requests to connect
//	ditask.<job>.conn.<inbox>.*   messages of connections; <inbox> is random, and * names this end of one
//
// Messages are those of package broker. The reply subject is the sender's own end, so
// that a server without a subscriber reports that ("no responders"), and the
// connection breaks at once. A piece of data is at most 256 KiB, a quarter of the window,
// and what the server takes.
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
// [Transport.Dial] waits for that. Servers of a cluster that are not in the list are
// not used, whatever a server says of them: a server, or a process that has taken
// the place of one, leads its clients nowhere else. Nothing is kept to be sent later. The
// connection is given up, too, when the server takes nothing of what is written for
// 3 s, and when it leaves two pings, 1.5 s apart, without an answer. A
// server that cannot be reached at first is tried for Config.ConnectTimeout, one that
// refuses this client is not.
//
// # Concurrency
//
// A [Transport] is safe for concurrent use. It has one connection with the server,
// made at the first Listen or Dial. Its goroutines are those of package nats, and the
// writer of its hub: Close ends them. Close of a
// connection waits for nothing; Read and Write may wait for the server for 3 s, whatever
// their deadlines.
package natsbus
