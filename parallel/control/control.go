// Package control is what a launcher and the nodes that it starts say to each
// other: the environment variables that make a process node k of N, and the
// lines of JSON that the node writes on a socket back to its launcher.
//
// The socket is one end of a pair that the launcher keeps: when the node reads
// end-of-file there, its launcher is gone, however it died, and the node ends.
package control
