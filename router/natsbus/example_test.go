package natsbus_test

import (
	"context"
	"fmt"
	"io"

	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

func Example() {
	ctx := context.Background()
	s, err := embedded.Start(ctx, embedded.Config{Key: natsbus.JobKey("job's token")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	c, err := natsbus.New(natsbus.Config{URL: s.URL(), Key: natsbus.JobKey("job's token"), Job: "j1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	l, err := c.Listen(ctx, "bus://node.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := c.Dial(ctx, c.Advertise(l))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = conn.Write([]byte("hello"))
	_ = conn.Close()
	other, _ := l.Accept()
	b, _ := io.ReadAll(other)
	fmt.Println(string(b))
	// Output: hello
}

func ExamplePublic() {
	fmt.Println(natsbus.Public("nats://user:password@a:4222,nats://token@b:4222"))
	// Output: nats://a:4222,nats://b:4222
}
