// Package proof lets a client and the NATS server of a job prove to each other that they know the
// same key, before they send anything else. The key is never sent.
//
//	err := proof.Client(conn, key) // where the connection was dialled
//	err := proof.Server(conn, key) // where it was accepted
//
// The caller sets the deadline of the connection. An error leaves the connection unusable.
//
// # The wire
//
//	both    magic (8 bytes), nonce (32 bytes), without waiting for the other side
//	client  proof (32 bytes)
//	server  1 and its proof (32 bytes), or 0: the client's proof is wrong
//
// A proof is the HMAC-SHA256, under the key, of "ditask nats", the side, the client's nonce,
// the server's nonce and, under TLS, 32 bytes that only the two ends of the connection can
// know (an exporter of RFC 8446). The client proves first, so that connecting to a server
// yields no proof that a weak key could be guessed from.
package proof

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// The errors of a conversation, other than those of the connection.
var (
	ErrKey     = errors.New("the other side does not know the job's token")
	ErrTLS     = errors.New("tls: the other side speaks TLS, and this one has no certificate")
	ErrForeign = errors.New("the other side does not speak this protocol")
)

// magic begins the messages of each side. Its last byte is the version.
var magic = [8]byte{'d', 'i', 't', 'n', 'a', 't', 's', 1}

const (
	nonceBytes = 32
	proofBytes = sha256.Size
	helloBytes = len(magic) + nonceBytes
)

// The sides of a conversation.
const (
	client = "client"
	server = "server"
)

// Client proves to a server that this side knows the key, and demands the same of it.
func Client(conn net.Conn, key []byte) error {
	mine, theirs, err := exchangeNonces(conn)
	if err != nil {
		return err
	}
	bound := binding(conn)
	if _, err := conn.Write(prove(key, client, mine, theirs, bound)); err != nil {
		return err
	}
	var answer [1 + proofBytes]byte
	if _, err := io.ReadFull(conn, answer[:1]); err != nil {
		return err
	}
	if answer[0] != 1 {
		return fmt.Errorf("refused: %w", ErrKey)
	}
	if _, err := io.ReadFull(conn, answer[1:]); err != nil {
		return err
	}
	if !hmac.Equal(answer[1:], prove(key, server, mine, theirs, bound)) {
		return ErrKey
	}
	return nil
}

// Server demands that the client prove that it knows the key, and then proves the same.
func Server(conn net.Conn, key []byte) error {
	mine, theirs, err := exchangeNonces(conn)
	if err != nil {
		return err
	}
	var p [proofBytes]byte
	if _, err := io.ReadFull(conn, p[:]); err != nil {
		return err
	}
	bound := binding(conn)
	if !hmac.Equal(p[:], prove(key, client, theirs, mine, bound)) {
		_, _ = conn.Write([]byte{0}) // the proof is wrong, and the client may already be gone
		return ErrKey
	}
	_, err = conn.Write(append([]byte{1}, prove(key, server, theirs, mine, bound)...))
	return err
}

// exchangeNonces sends a nonce and reads the other side's.
func exchangeNonces(conn net.Conn) (mine, theirs []byte, err error) {
	mine = make([]byte, nonceBytes)
	_, _ = rand.Read(mine) // never fails
	if _, err := conn.Write(append(magic[:], mine...)); err != nil {
		return nil, nil, err
	}
	reply := make([]byte, helloBytes)
	_, err = io.ReadFull(conn, reply[:len(magic)])
	switch {
	case (reply[0] == 0x15 || reply[0] == 0x16) && reply[1] == 3: // a TLS alert, which has 7 bytes, or handshake
		return nil, nil, ErrTLS
	case err != nil:
		return nil, nil, err
	case [8]byte(reply[:8]) != magic:
		return nil, nil, ErrForeign
	}
	_, err = io.ReadFull(conn, reply[len(magic):])
	return mine, reply[len(magic):], err
}

// prove returns the proof of a side. Only the last part has a variable length.
func prove(key []byte, side string, clientNonce, serverNonce, bound []byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, b := range [][]byte{[]byte("ditask nats"), []byte(side), clientNonce, serverNonce, bound} {
		m.Write(b)
	}
	return m.Sum(nil)
}

// binding returns a secret of the two ends of a TLS connection, so that a process in the middle
// with a certificate of the job also needs its token. It is empty without TLS.
func binding(conn net.Conn) []byte {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	b, err := state.ExportKeyingMaterial("EXPORTER-ditask-nats", nil, 32)
	if err != nil {
		return nil // not every connection before TLS 1.3 has one
	}
	return b
}
