// Package trace records what events pass a node, in a file, and reads such files.
//
//	rec, err := trace.Create(trace.Path(dir, node, attempt), head, limit)
//	rec.Received("ping", 1, 17, nil, payload)
//	err = rec.Close()
//
//	r := trace.NewReader(file)
//	for {
//		rec, err := r.Next()
//		...
//	}
//
// Each start of a node writes a separate file, each record by one write before
// the message continues: what a node that crashed had received last is there. The
// payloads of what it receives are in the file, so that they can be given to it
// again; of what it sends only the sizes are.
//
// # The format
//
// The file begins with the 8 bytes "ditrace1". Records follow: the length of what
// comes after it (4 bytes), kind (1), time in nanoseconds since 1970 (8), body.
// Integers are little-endian.
//
//	kind      body
//	1 head    JSON: Head
//	2 event   number (2), JSON: Event. The number stands for the event from here on
//	3 sent    event (2), peer (4), version (8), payload bytes (8)
//	4 received  event (2), peer (4), version (8), header bytes (2), header, payload
//	5 peer    JSON: Peer
//	6 ready   none: the node is connected to those that it expects
//	7 end     JSON: End
//
// Readers pass over kinds that they do not know. A last record that is torn ends
// the file. When the limit of bytes is reached an end record marks that, and nothing
// comes after it.
//
// # Concurrency
//
// A [Recorder] is safe for concurrent use; a [Reader] is for one goroutine.
package trace
