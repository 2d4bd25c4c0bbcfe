package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxHosts bounds the hosts of a list and the numbers of counts, so that a typing error does not fill
// the memory. It is Slurm's own bound of one range.
const maxHosts = 1 << 16

// Hosts are the names that a list of Slurm stands for, as "scontrol show
// hostnames" prints them: n[08-10,12],gpu3 is n08 n09 n10 n12 gpu3, and
// a[1-2]b[3-4] is a1b3 a1b4 a2b3 a2b4. A number that begins with zeros is padded
// to its width. Text after the last bracket of a name is refused, as it is by
// Slurm. It fails for more than 65536 hosts.
func Hosts(list string) ([]string, error) {
	var hosts []string
	for _, item := range items(list) {
		names, err := expand(item, maxHosts-len(hosts))
		if err != nil {
			return nil, fmt.Errorf("host list: %q: %w", item, err)
		}
		hosts = append(hosts, names...)
	}
	if len(hosts) == 0 {
		return nil, errors.New("host list: no host")
	}
	return hosts, nil
}

// items splits a list at the commas and blanks that are not in brackets.
func items(list string) []string {
	var out []string
	depth, begin := 0, 0
	end := func(at int) {
		if at > begin {
			out = append(out, list[begin:at])
		}
		begin = at + 1
	}
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',', ' ', '\t', '\n':
			if depth == 0 {
				end(i)
			}
		}
	}
	end(len(list))
	return out
}

// part is a text and the numbers that follow it.
type part struct {
	text    string
	numbers []string
}

// expand gives the names of one item, at most limit of them.
func expand(item string, limit int) ([]string, error) {
	parts, err := split(item)
	if err != nil {
		return nil, err
	}
	total := 1
	for _, p := range parts {
		if total *= len(p.numbers); total > limit {
			return nil, fmt.Errorf("more than %d hosts", maxHosts)
		}
	}
	at := make([]int, len(parts))
	order := countingOrder(len(parts))
	names := make([]string, 0, total)
	for range total {
		var b strings.Builder
		for i, p := range parts {
			b.WriteString(p.text)
			b.WriteString(p.numbers[at[i]])
		}
		names = append(names, b.String())
		for _, i := range order {
			if at[i]++; at[i] < len(parts[i].numbers) {
				break
			}
			at[i] = 0
		}
	}
	return names, nil
}

// countingOrder describes which of n brackets counts fastest, then next, and so on.
// Slurm takes the last bracket as the range of a name that may have more of them,
// and expands those from the last to the first, each in a loop around the ones
// before it.
func countingOrder(n int) []int {
	order := []int{n - 1}
	for i := range n - 1 {
		order = append(order, i)
	}
	return order
}

// split takes an item apart; a name without brackets is one part.
func split(item string) ([]part, error) {
	if bad := strings.IndexFunc(item, badInName); bad >= 0 {
		return nil, fmt.Errorf("want letters, digits, dots, hyphens, underscores and brackets, not %q", item[bad:bad+1])
	}
	if !strings.ContainsAny(item, "[]") {
		return []part{{item, []string{""}}}, nil
	}
	var parts []part
	for rest := item; rest != ""; {
		text, tail, open := strings.Cut(rest, "[")
		ranges, after, closed := strings.Cut(tail, "]")
		switch {
		case strings.Contains(text, "]") || open && (!closed || strings.Contains(ranges, "[")):
			return nil, errors.New("the brackets do not match")
		case !open:
			return nil, fmt.Errorf("%q stands after the last bracket, which Slurm does not allow", text)
		}
		numbers, err := numbersOf(ranges)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{text, numbers})
		rest = after
	}
	return parts, nil
}

// badInName reports what no name of a host has; brackets and commas belong to
// the list.
func badInName(r rune) bool {
	alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !alnum && !strings.ContainsRune("._-[],", r)
}

// numbersOf are the numbers of a bracket, such as 08-10,12.
func numbersOf(ranges string) ([]string, error) {
	var out []string
	for word := range strings.SplitSeq(ranges, ",") {
		low, high, isRange := strings.Cut(word, "-")
		if !isRange {
			high = low
		}
		first, err1 := decimal(low)
		last, err2 := decimal(high)
		switch {
		case err1 != nil || err2 != nil || last < first:
			return nil, fmt.Errorf("range %q: want a number, or two of them, the smaller first", word)
		case last-first >= maxHosts-len(out):
			return nil, fmt.Errorf("range %q: more than %d hosts", word, maxHosts)
		}
		for n := first; n <= last; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(low), n))
		}
	}
	return out, nil
}

// decimal is a number of at most nine digits.
func decimal(s string) (int, error) {
	if s == "" || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("want a number of at most nine digits")
	}
	return strconv.Atoi(s)
}

// Counts are the numbers that a list such as 2(x3),1 stands for: 2 2 2 1. It
// fails for more than 65536 of them, and for a number below 1.
func Counts(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		count, times := word, "1"
		if head, tail, repeated := strings.Cut(word, "(x"); repeated {
			var closed bool
			count = head
			if times, closed = strings.CutSuffix(tail, ")"); !closed {
				return nil, fmt.Errorf("counts: %q: want a number, or one such as 2(x3)", word)
			}
		}
		n, err1 := decimal(count)
		k, err2 := decimal(times)
		switch {
		case err1 != nil || err2 != nil || n < 1 || k < 1:
			return nil, fmt.Errorf("counts: %q: want a number, or one such as 2(x3)", word)
		case k > maxHosts-len(out):
			return nil, fmt.Errorf("counts: %q: more than %d numbers", word, maxHosts)
		}
		out = append(out, slices.Repeat([]int{n}, k)...)
	}
	return out, nil
}
