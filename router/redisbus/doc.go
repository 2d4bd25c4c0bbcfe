// Package redisbus connects nodes through a Redis or Valkey server, for jobs whose
// nodes cannot reach each other but can all reach the server.
//
//	c, err := redisbus.New(redisbus.Config{URL: "redis://user:secret@host:6379/0", Job: "run-7"})
//	r, err := router.New(router.Config{Carrier: c, Listen: "bus://node.0"})
//
// Addresses are "bus://" and a word that is the same for all who dial it, such as
// bus://node.3. Who listens on a word that another one listens on takes it over: a
// node that was killed is found at its place again as soon as it is back.
//
// # What is promised
//
// A connection delivers all bytes in order or breaks. Everything in it is
// numbered, so bytes that the server has lost, because it was restarted, flushed,
// replaced by a replica that lagged behind, or because it evicted a key, break it
// with an error that says so; entries that come twice are seen as such. The
// sessions of package router then dial again and continue where they were.
//
// A connection to the server that breaks is made anew, and nobody notices. What
// the server refuses (a wrong password, missing permissions, no memory left) is
// an error that names the server and says what to do.
//
// # What is on the server
//
// It needs Redis 6.2 or later, or Valkey; the tests run on Redis 7.0 and Valkey 8.0.
// All keys of a job carry its id as a hash tag, so they are in one slot of a
// cluster; the URL must name the server that has it. Characters in job and word
// other than letters, digits and -_.~ are escaped as in a URL's query.
//
//	ditask:{job}:at:word    string: the inbox of who listens on bus://word
//	ditask:{job}:in:inbox   stream: what is under way to one carrier
//
// A carrier that listens or has a connection holds one inbox with a random name,
// and two to four connections to the server: one waits for entries, one adds them,
// and the others are for those who dial and for the keys. Entries are deleted as they are read. A connection has at most
// Config.WindowBytes under way in each direction, so the memory that a job takes
// of the server is bounded by its connections; it is next to nothing while all
// nodes read.
//
// The keys have an expiry of 30 s for an inbox, 10 s for a word, which is renewed
// every 2 s, and they are deleted at the end: nothing remains of a job that
// crashed. They are of no use to a later one.
//
// Nothing needs to be saved to disk. Where other data share the server, its
// maxmemory-policy should be noeviction or spare keys with an expiry.
//
// This is all that the server's user needs:
//
//	ACL SETUSER ditask on >secret resetchannels ~ditask:{run-7}:* -@all
//	    +xadd +xread +xdel +set +get +del +pexpire
//
// and +select if the URL names a database other than 0. The pattern ~ditask:* is
// for all jobs.
//
// Whoever may use these keys sees what the nodes say to each other, and could
// change it: the token of the job, which the handshake proves, keeps strangers out
// but not the server. Beyond one machine, use rediss:// and a user for the job.
//
// # Entries
//
// An entry has one field, f. It is a head of 25 bytes and a body; integers are
// little-endian:
//
//	type      1  what it is
//	to        8  the connection's id at the receiver
//	offset    8  bytes that went before it in this direction
//	consumed  8  bytes of the other direction that were read here
//
//	1 syn     id (8), window (4) and inbox (16) of who dials, and the word
//	2 accept  id (8), window (4) and inbox (16) of who listens
//	3 data    bytes
//	4 ack     nothing
//	5 fin     nothing: the sender has closed the connection; offset is the end
//	6 none    nothing: it makes the stream
//
// A window is how many bytes of data may be under way, that is, sent and not told
// of as consumed. Totals ride on data; an ack goes out when a quarter of the
// window was consumed with no data to tell it.
//
// A [Carrier] is safe for concurrent use. It opens its connections to the server
// with the first Listen or Dial and closes them with the last listener and
// connection; closing the last one waits until what was written is on the server.
package redisbus
