// Package natsbus connects nodes through a NATS server, or a cluster of them. All nodes must reach
// the server; they need not reach each other.
//
//	c, err := natsbus.New(natsbus.Config{URL: "nats://nats.example:4222", Job: "j1"})
//	defer c.Close()
//	r, err := router.New(router.Config{Transport: c, Listen: "bus://node.1", Attach: []string{"bus://node.0"}})
//
// An address is "bus://node.<id>", a name within the job. The [Config] has the address of the
// server.
//
// NATS delivers a message at most once. Connections are those of package broker: they number their
// bytes and break when bytes are missing. The session above then dials again and continues after
// the last frame that was received. The server stores nothing, so JetStream is not needed.
//
// # The wire
//
// All subjects of a job begin with "ditask.<job>.", where a byte of the job's id that is not a
// letter, a digit, "_" or "-" is "~" and two hexadecimal digits. A user of the server that takes
// part only in the job j1 needs
//
//	permissions: { publish: "ditask.j1.>", subscribe: "ditask.j1.>" }
//
// and can then also read and disturb the messages between the job's nodes, as the owner of a switch
// can with tcp. Use TLS for the connections with the server, and separate users or accounts for
// jobs that must not trust each other.
//
// A node has two subscriptions for all of its connections:
//
//	ditask.<job>.dial.<node>      requests to connect
//	ditask.<job>.conn.<inbox>.*   messages of connections; <inbox> is random, and * names this end of one
//
// Messages are those of package broker. The reply subject is the sender's own end, so that the
// server reports a missing subscriber ("no responders") and the connection breaks at once. A piece
// of data is at most 256 KiB, a quarter of the window, and the server's maximum.
//
// # The server of a job
//
// With [Config.Key], the server is one of package embedded with the same key. At the start of each
// connection, under TLS if there is any, both sides prove that they know the key, by HMACs over
// fresh nonces: 40 bytes each way, the client's proof, and the server's. The NATS protocol begins
// only after that. A process that has taken the server's address gets neither a login nor a
// subject; Stats.Unproved counts it. Without TLS, a process that relays to the true server is not
// noticed.
//
// # Windows
//
// The server closes a client that it cannot write to when 64 MiB wait for it (max_pending). The
// windows of all peers of a node must stay below, so they are 48 MiB together, and each is between
// 256 KiB and 2 MiB.
//
// # Errors
//
// When the connection with the server is lost, all connections through it break, and the client
// connects again to any server of Config.URL; [Transport.Dial] waits for that. The client does not
// use servers of a cluster that are not in the list, even if a server announces them, so a process
// that has taken a server's address cannot lead clients to other addresses. No data are kept to be
// sent later. The client also closes the connection when the server accepts no data for 3 s, or
// does not answer two pings, 1.5 s apart. The first attempt retries an unreachable server for
// Config.ConnectTimeout, and returns at once if the server refuses this client.
//
// # Concurrency
//
// A [Transport] is safe for concurrent use. It has one connection with the server, made at the
// first Listen or Dial. Its goroutines are those of package nats and the writer of its hub; Close
// ends them. Close of a connection does not wait; Read and Write may wait 3 s for the server,
// whatever their deadlines.
package natsbus
