// Package redisbus connects nodes through a Redis or Valkey server, for jobs whose
// nodes cannot reach each other but can all reach the server.
//
//	c, err := redisbus.New(redisbus.Config{URL: "redis://user:secret@host:6379/0", Job: "run-7"})
//	r, err := router.New(router.Config{Transport: c, Listen: "bus://node.0"})
//
// Addresses are "bus://" and a word that is the same for all nodes that dial it, such as
// bus://node.3. A node that listens on a word of another one takes it over: a
// node that was killed is found at its place again as soon as it is back.
//
// # What is promised
//
// Connections are those of package broker: bytes that the server has lost, because it was
// restarted, flushed, replaced by a replica that lagged behind, or because it evicted a key,
// break one with an error that names them; entries that come twice are seen as such. The
// sessions of package router then dial again and continue where they were.
//
// A connection to the server that breaks is made again, which users do not notice. What
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
//	ditask:{job}:at:word    string: the inbox of the listener on bus://word
//	ditask:{job}:in:inbox   stream: what is under way to one transport
//
// A transport that listens or has a connection holds one inbox with a random name,
// and two to four connections to the server: one waits for entries, one adds them,
// and the others are for dials and for the keys. Entries are deleted as they are read. A connection has at most
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
// A client that may use these keys sees the messages of the nodes, and could
// change it: the token of the job, which the handshake proves, keeps unauthenticated clients out
// but not the server. Beyond one machine, use rediss:// and a user for the job.
//
// An entry has one field, f: a message of package broker, or nothing, which makes the
// stream. A piece of data is at most 128 KiB, and a quarter of the window.
//
// A [Transport] is safe for concurrent use. It opens its connections to the server
// with the first Listen or Dial and closes them with the last listener and
// connection; closing the last one waits until what was written is on the server.
package redisbus
