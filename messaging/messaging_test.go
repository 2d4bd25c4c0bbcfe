package messaging_test

import (
	"fmt"
	"testing"

	"github.com/ditask/ditask/messaging"
)

func ExampleSpec() {
	spec := messaging.Spec{Name: "greeting", Delivery: messaging.Latest}
	fmt.Println(spec.Name, spec.Delivery)
	// Output: greeting latest
}

// The names of the policies are on the wire, and in records: they do not change.
func TestNamesOfThePolicies(t *testing.T) {
	for d, want := range []string{"reliable", "latest", "drop-oldest", "drop-newest", "delivery(4)"} {
		if got := messaging.Delivery(d).String(); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
