package auth

import (
	"errors"
	"slices"
	"strings"
)

// Role is what a user or a token may do.
type Role string

// The roles (design section 8).
const (
	Operator Role = "operator" // runs accounts, limits, webhooks, fleets
	Finance  Role = "finance"  // reads and downloads reports
)

// Roles are the roles of one user or token, each once.
type Roles []Role

var errRoles = errors.New("want one or both of operator and finance as roles, separated by a comma")

// ParseRoles reads "operator", "finance" or both with a comma. The error does
// not repeat the text: in a line with a missing part a secret stands there.
func ParseRoles(text string) (Roles, error) {
	var roles Roles
	for name := range strings.SplitSeq(text, ",") {
		role := Role(name)
		if role != Operator && role != Finance || slices.Contains(roles, role) {
			return nil, errRoles
		}
		roles = append(roles, role)
	}
	return roles, nil
}

// Names are the roles as they are written down.
func (rs Roles) Names() []string {
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = string(r)
	}
	return names
}

// String is the inverse of ParseRoles.
func (rs Roles) String() string { return strings.Join(rs.Names(), ",") }

// Include tells whether one of the wanted roles is among them.
func (rs Roles) Include(wanted ...Role) bool {
	return slices.ContainsFunc(wanted, func(r Role) bool { return slices.Contains(rs, r) })
}
