package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// maxPods bounds the pods of a job, so that a typing error does not fill the memory.
const maxPods = 4096

// Hosts expands a list of host names such as h0,h1 or h-[0-3].svc A
// name that comes again is another pod on the same host.
func Hosts(list string) ([]string, error) {
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		names, err := expand(strings.TrimSpace(word), maxPods-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, names...)
	}
	return out, nil
}

// expand is the names that one word stands for, at most that many.
func expand(word string, most int) ([]string, error) {
	names := []string{""}
	rest := word
	for rest != "" {
		before, after, ranged := strings.Cut(rest, "[")
		for i := range names {
			names[i] += before
		}
		if rest = after; !ranged {
			break
		}
		inside, after, closed := strings.Cut(rest, "]")
		first, last, err := numbers(inside)
		if !closed || err != nil {
			return nil, fmt.Errorf("%q: want a range such as [0-3]", word)
		}
		if len(names)*(last-first+1) > most {
			return nil, errMany
		}
		rest = after
		var longer []string
		for _, name := range names {
			for n := first; n <= last; n++ {
				longer = append(longer, name+strconv.Itoa(n))
			}
		}
		names = longer
	}
	if len(names) > most {
		return nil, errMany
	}
	for _, name := range names {
		if err := checkHost(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

var errMany = fmt.Errorf("more than %d pods", maxPods)

// numbers reads the inside of a range.
func numbers(s string) (first, last int, err error) {
	a, b, _ := strings.Cut(s, "-")
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	if first < 0 || last < first || last-first >= maxPods || strings.ContainsAny(s, "+") {
		return 0, 0, errors.New("not from small to large")
	}
	return first, last, nil
}

// checkHost reports whether name can be a host: a name of DNS, or an address.
func checkHost(name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	valid := name != "" && len(name) <= 253
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		valid = valid && label != "" && len(label) <= 63 && !strings.HasPrefix(label, "-") && !strings.HasSuffix(label, "-")
		for _, r := range label {
			valid = valid && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}
	}
	if !valid {
		return fmt.Errorf("%q: want the name of a host, such as dqn-0.dqn, or an address, without a port", name)
	}
	return nil
}
