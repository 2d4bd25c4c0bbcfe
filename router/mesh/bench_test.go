package mesh_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/mesh"
)

var benchSizes = []struct {
	name  string
	bytes int
}{{"64B", 64}, {"4KiB", 4 << 10}, {"1MiB", 1 << 20}}

func benchAddr(b *testing.B, network string, node int) string {
	if network == "unix" {
		return "unix://" + filepath.Join(b.TempDir(), fmt.Sprint(node))
	}
	return "tcp://127.0.0.1:0"
}

// BenchmarkRaw is the baseline: frames of a length and a body, written through a
// buffer of 64 KiB, read through one.
func BenchmarkRaw(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, size := range benchSizes {
			b.Run(network+"/"+size.name, func(b *testing.B) {
				_, addr, _ := mesh.Split(benchAddr(b, network, 0))
				l, err := net.Listen(network, addr)
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				done := make(chan error, 1)
				go func() {
					c, err := l.Accept()
					if err != nil {
						done <- err
						return
					}
					rd := bufio.NewReaderSize(c, 64<<10)
					body := make([]byte, size.bytes)
					var n [4]byte
					for {
						if _, err := io.ReadFull(rd, n[:]); err != nil {
							done <- nil
							return
						}
						if _, err := io.ReadFull(rd, body[:binary.LittleEndian.Uint32(n[:])]); err != nil {
							done <- err
							return
						}
					}
				}()
				c, err := net.Dial(network, l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				w := bufio.NewWriterSize(c, 64<<10)
				body := make([]byte, size.bytes)
				b.SetBytes(int64(size.bytes))
				b.ReportAllocs()
				for b.Loop() {
					var n [4]byte
					binary.LittleEndian.PutUint32(n[:], uint32(len(body)))
					_, _ = w.Write(n[:])
					_, _ = w.Write(body)
				}
				_ = w.Flush()
				_ = c.Close()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkSend is reliable delivery by the router over the same sockets.
func BenchmarkSend(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, size := range benchSizes {
			b.Run(network+"/"+size.name, func(b *testing.B) {
				spec := router.Spec{Name: "n"}
				var rs []*router.Router
				var chs []*router.Channel
				for i := range 2 {
					cfg := router.Config{Job: "b", Node: i, Expect: 2, Carrier: mesh.New(mesh.Config{}), Listen: benchAddr(b, network, i)}
					if i == 1 {
						l, err := cfg.Carrier.Listen(b.Context(), benchAddr(b, network, 0))
						if err != nil {
							b.Fatal(err)
						}
						cfg.Attach = []string{rs0(rs[0], l)}
					}
					r, err := router.New(cfg)
					if err != nil {
						b.Fatal(err)
					}
					ch, err := r.Channel(spec, func(m *router.Message) error {
						m.Credit.Return(1, len(m.Payload))
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
					rs, chs = append(rs, r), append(chs, ch)
					if i == 1 {
						ch.Listen(true)
					}
					go func() { _ = r.Start(b.Context(), nil) }()
					if i == 0 {
						for r.Addr() == "" {
						}
					}
				}
				for !chs[0].Listened() {
				}
				body := make(router.Bytes, size.bytes)
				b.SetBytes(int64(size.bytes))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := chs[0].Send(b.Context(), body, nil); err != nil {
						b.Fatal(err)
					}
				}
				_ = rs[0].Drain(context.Background(), false)
				b.StopTimer()
				_ = rs[0].Close()
				_ = rs[1].Close()
			})
		}
	}
}

func rs0(r *router.Router, l net.Listener) string { _ = l.Close(); return r.Addr() }
