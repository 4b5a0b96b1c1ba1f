package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
)

// hashing is RFC 9106's second recommended setting, with its 64 MB, for
// passwords that are set here: about a tenth of a second of one processor.
var hashing = argon2id.Params{Memory: 64 << 10, Iterations: 3, Parallelism: 4, SaltLength: 16, KeyLength: 32}

// What a hash made elsewhere must be like: OWASP's least effort (19 MiB twice,
// or more memory once), and no more memory than a sign-in may cost.
const (
	leastMemory = 19 << 10  // KiB
	mostMemory  = 256 << 10 // KiB
	leastEffort = 2 * leastMemory
	mostPasses  = 16
	mostLanes   = 16
)

// Lengths of a password: characters at least (NIST SP 800-63B asks for as many
// where nothing but a password is asked for), bytes at most.
const (
	LeastPassword = 15
	MostPassword  = 256
)

// User is somebody who signs in with a password.
type User struct {
	Name  string
	Roles Roles
	hash  string
}

// NewUser makes a user with a password of 15 characters to 256 bytes.
func NewUser(name string, roles Roles, password string) (User, error) {
	if err := checkName(name); err != nil {
		return User{}, err
	}
	if !utf8.ValidString(password) || utf8.RuneCountInString(password) < LeastPassword || len(password) > MostPassword {
		return User{}, fmt.Errorf("a password has at least %d characters and at most %d bytes of UTF-8", LeastPassword, MostPassword)
	}
	hash, err := argon2id.CreateHash(password, &hashing)
	if err != nil {
		return User{}, fmt.Errorf("hash the password: %w", err)
	}
	return User{Name: name, Roles: roles, hash: hash}, nil
}

// Line is the user's line in PANEL_USERS.
func (u *User) Line() string { return u.Name + ":" + u.Roles.String() + ":" + u.hash }

// credential stands for the user's line in the sessions that were begun with it:
// another password, other roles, and they are over.
func (u *User) credential() [32]byte { return sha256.Sum256([]byte(u.Line())) }

// ParseUsers reads lines "name:role[,role]:$argon2id$…". Errors name the line,
// never its hash: an unknown role, a name that occurs twice, a hash that is
// none, weak, or too costly.
func ParseUsers(text string) ([]User, error) {
	var users []User
	err := parseLines(text, func(n named, hash string) error {
		users = append(users, User{Name: n.name, Roles: n.roles, hash: hash})
		return checkHash(hash)
	})
	if err != nil {
		return nil, err
	}
	return users, nil
}

var (
	errNoHash = errors.New("the password's hash is not one of argon2id as `reporting user` prints it")
	errWeak   = errors.New("the password's hash is too weak; make it anew with `reporting user`")
	errCostly = errors.New("the password's hash takes too much memory or time; make it anew with `reporting user`")
)

// checkHash refuses what would be guessed, what would end the process, and what
// has anything before, between or behind its parts.
func checkHash(hash string) error {
	p, salt, key, err := argon2id.DecodeHash(hash) // knows version 19 only
	if err != nil || !strings.HasPrefix(hash, fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$", p.Memory, p.Iterations, p.Parallelism)) {
		return errNoHash
	}
	switch {
	case p.Memory > mostMemory, p.Iterations > mostPasses, p.Parallelism > mostLanes, len(salt) > 64, len(key) > 64:
		return errCostly
	case p.Parallelism < 1, p.Memory < leastMemory, p.Memory*p.Iterations < leastEffort, len(salt) < 16, len(key) < 32:
		return errWeak
	}
	return nil
}
