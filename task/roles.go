package task

import (
	"path"
	"slices"
	"strings"
)

// matchAny reports whether any pattern matches any of the words. A star matches any
// run of characters, a question mark one, [a-z] one of a class. A pattern that
// is malformed matches nothing.
func matchAny(patterns, words []string) bool {
	for _, p := range patterns {
		for _, w := range words {
			// To path.Match a slash is a border; in a label it is a letter.
			ok, _ := path.Match(strings.ReplaceAll(p, "/", "\x00"), strings.ReplaceAll(w, "/", "\x00"))
			if ok {
				return true
			}
		}
	}
	return false
}

// byID returns the role of a node: the i-th of roles, the last for all others.
func byID(id int, roles []string) string { return roles[min(id, len(roles)-1)] }

// assignRoles applies the options to this node. Roles are nil if the node has all of them.
func (e *engine) assignRoles(c *config) {
	e.known = slices.Concat(c.byID, c.roles)
	for _, l := range c.byLabel {
		e.known = append(e.known, l.roles...)
	}
	given := len(c.roles) > 0
	roles := slices.Clone(c.roles)
	if !slices.Contains(e.labels, "standalone") {
		if len(c.byID) > 0 {
			given = true
			roles = append(roles, byID(e.id, c.byID))
		}
		for _, l := range c.byLabel {
			given = true
			if matchAny([]string{l.glob}, e.labels) {
				roles = append(roles, l.roles...)
			}
		}
	}
	if given {
		slices.Sort(roles)
		e.roles = append([]string{}, slices.Compact(roles)...)
	}
	// Roles are announced as labels, so that To finds them.
	e.words = slices.Clone(e.labels)
	if given {
		e.words = append(e.words, e.roles...)
	} else {
		e.words = append(e.words, e.known...)
	}
}

func (e *engine) has(role string) bool {
	return e.roles == nil || slices.Contains(e.roles, role)
}
