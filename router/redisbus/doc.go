// Package redisbus connects nodes through a Redis or Valkey server, for jobs whose
// nodes cannot reach each other but can all reach the server.
//
//	c, err := redisbus.New(redisbus.Config{URL: "redis://user:secret@host:6379/0", Job: "run-7"})
//	r, err := router.New(router.Config{Transport: c, Listen: "bus://node.0"})
//
// An address is "bus://" and a word that is the same for all nodes that dial it, such as
// bus://node.3. A node that listens on a word of another node takes it over, so a node that was
// killed can be found at its address as soon as it runs again.
//
// # What is promised
//
// Connections are those of package broker. The server loses bytes if it is restarted, flushed,
// replaced by a replica that lagged behind, or if it evicts a key; the connection then breaks with
// an error that names them. Repeated entries are recognised. The sessions of package router then
// dial again and continue where they were.
//
// A broken connection to the server is made again, and users do not notice. If the server refuses a
// command (a wrong password, missing permissions, no memory left), the error names the server and
// the remedy.
//
// # What is on the server
//
// It needs Redis 6.2 or later, or Valkey; the tests run on Redis 7.0 and Valkey 8.0.
// All keys of a job carry its id as a hash tag, so they are in one slot of a
// cluster; the URL must name the server that has it. Characters in job and word
// other than letters, digits and -_.~ are escaped as in a URL's query.
//
//	ditask:{job}:at:word    string: the inbox of the listener on bus://word
//	ditask:{job}:in:inbox   stream: the messages under way to one transport
//
// A transport that listens or has a connection holds one inbox with a random name, and two to four connections
// to the server: one waits for entries, one adds them, and the others are for dials and for the keys. Entries
// are deleted as they are read. A connection has at most Config.WindowBytes under way in each direction, so the
// number of a job's connections bounds the memory that it takes on the server; while all nodes read, that is
// almost nothing.
//
// The keys have an expiry of 30 s for an inbox and 10 s for a word, renewed every 2 s, and are
// deleted at the end. No key of a crashed job remains, and a later job cannot use them.
//
// The server need not save anything to disk. If it also holds other data, its maxmemory-policy
// should be noeviction or spare keys with an expiry.
//
// The server's user needs only these permissions:
//
//	ACL SETUSER ditask on >secret resetchannels ~ditask:{run-7}:* -@all
//	    +xadd +xread +xdel +set +get +del +pexpire
//
// and +select if the URL names a database other than 0. The pattern ~ditask:* covers all jobs.
//
// A client that may use these keys can read and change the messages of the nodes: the token of the
// job, which the handshake proves, keeps out unauthenticated clients but not the server. Beyond one
// machine, use rediss:// and a separate user for the job.
//
// An entry has one field, f: a message of package broker, or an empty value, which creates the
// stream. A piece of data is at most 128 KiB, and a quarter of the window.
//
// A [Transport] is safe for concurrent use. It opens its connections to the server with the first
// Listen or Dial and closes them with the last listener and connection. Closing the last one waits
// until the server has all written data.
package redisbus
