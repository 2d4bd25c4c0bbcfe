package payload_test

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/ditask/ditask/payload"
)

type weights struct {
	Version uint64
	Bias    []float32
}

func Example() {
	plan, err := payload.New(payload.Limits{}).Plan(reflect.TypeFor[weights]())
	if err != nil {
		fmt.Println(err)
		return
	}
	buf, err := plan.Append(nil, &weights{Version: 3, Bias: []float32{1, 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var got weights
	err = plan.Decode(buf, &got, true)
	fmt.Printf("% x\n%+v %v\n", buf, got, err)
	// Output:
	// 82 03 d8 55 48 00 00 80 3f 00 00 00 40
	// {Version:3 Bias:[1 2]} <nil>
}

func ExamplePlan_Schema() {
	plan, _ := payload.New(payload.Limits{}).Plan(reflect.TypeFor[weights]())
	fmt.Printf("%s %#x\n", plan.Schema(), plan.Fingerprint())
	// Output: struct{Version:uint64 Bias:[]float32} 0xe0510577e37acccd
}

func ExampleEncodeError() {
	type obs struct {
		Frames []struct{ Ready chan bool }
	}
	_, err := payload.New(payload.Limits{}).Plan(reflect.TypeFor[obs]())
	fmt.Println(err)
	// Output: payload: encode payload_test.obs: Frames[].Ready: a channel cannot travel
}

func ExampleDecodeError() {
	plan, _ := payload.New(payload.Limits{}).Plan(reflect.TypeFor[weights]())
	err := plan.Decode([]byte{0x82, 0x03, 0xd8, 0x55, 0x5a, 0xff, 0xff, 0xff, 0xff}, new(weights), false)
	var fault *payload.DecodeError
	fmt.Println(errors.As(err, &fault), fault.Path, fault.Offset)
	fmt.Println(err)
	// Output:
	// true Bias 4
	// payload: decode payload_test.weights: Bias: at byte 4: a string of 4294967295 bytes where 0 are left
}
