package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"

	"vendorapi/internal/config"
)

// The variables that hold the lists or, with _FILE behind, name a file.
const (
	UsersVariable  = "PANEL_USERS"
	TokensVariable = "REPORT_TOKENS"
)

// maxLines bounds each list; every token is compared with every request's.
const maxLines = 1000

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@+-]{0,63}$`)

// People are who may sign in, and the programs that read reports.
type People struct {
	Users  []User
	Tokens []Token
}

// FromEnvironment reads both lists, of which one may be missing. Errors name variable and
// line, and show nothing of a secret.
func FromEnvironment() (p People, err error) {
	p.Users, err = readList(UsersVariable, ParseUsers)
	if err == nil {
		p.Tokens, err = readList(TokensVariable, ParseTokens)
	}
	if err == nil && len(p.Users)+len(p.Tokens) == 0 {
		err = fmt.Errorf("nobody may come in: set %s or %s, or one of them with _FILE", UsersVariable, TokensVariable)
	}
	return p, err
}

func readList[T any](variable string, parse func(string) ([]T, error)) (list []T, err error) {
	text, err := config.Variable(variable)
	if err != nil || text == "" {
		return nil, err
	}
	list, err = parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return list, nil
}

// parseLines reads "name:roles:secret" lines, but for empty ones and those that begin with #.
func parseLines(text string, add func(name string, roles Roles, secret string) error) error {
	seen := make(map[string]int)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		parts := strings.SplitN(line, ":", 3)
		name, err := parts[0], checkName(parts[0])
		before, repeated := seen[name]
		switch {
		case len(seen) == maxLines:
			err = fmt.Errorf("at most %d are taken", maxLines)
		case len(parts) < 3:
			err = errors.New(`want "name:roles:" and what the command printed behind it`)
		case repeated:
			err = fmt.Errorf("%q is in line %d already", name, before)
		case err == nil:
			var roles Roles
			roles, err = ParseRoles(parts[1])
			if err == nil {
				err = add(name, roles, parts[2])
			}
			if err != nil {
				err = fmt.Errorf("%q: %w", name, err)
			}
		}

		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}

		seen[name] = number
	}

	if len(seen) == 0 {
		return errors.New("the list is empty")
	}

	return nil
}

// checkName allows what is typed the same on every keyboard, also a Turkish one.
func checkName(name string) error {
	if !validName.MatchString(name) {
		return errors.New("a name has 1 to 64 characters of a-z 0-9 . _ @ + -, a letter or digit first")
	}
	return nil
}

// hashing is RFC 9106's second recommended setting: 64 MB, about 0.1 s of one processor.
var hashing = argon2id.Params{Memory: 64 << 10, Iterations: 3, Parallelism: 4, SaltLength: 16, KeyLength: 32}

// Bounds of a hash made elsewhere: OWASP's least effort (19 MiB twice, or more memory once).
const (
	leastMemory = 19 << 10  // KiB
	mostMemory  = 256 << 10 // KiB
	leastEffort = 2 * leastMemory
	mostPasses  = 16
	mostLanes   = 16
)

// Lengths of a password: characters at least (NIST SP 800-63B), bytes at most.
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

// NewUser makes a user with a password of LeastPassword to MostPassword.
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

// credential proves that the user's session with an id was made by this panel: it is signed with the user's line,
// which is not in Redis. Sessions end with another password or other roles, and one that is copied to another
// id, or written for another user, is none.
func (u *User) credential(sessionID string) [32]byte {
	return [32]byte(u.sign("panel session", []byte(sessionID)))
}

// sign signs data with the user's line, for one purpose.
func (u *User) sign(purpose string, data []byte) []byte {
	mac := hmac.New(sha256.New, []byte(u.Line()))
	mac.Write([]byte(purpose + "\x00"))
	mac.Write(data)
	return mac.Sum(nil)
}

// ParseUsers reads lines "name:role[,role]:$argon2id$…".
func ParseUsers(text string) ([]User, error) {
	var users []User
	err := parseLines(text, func(name string, roles Roles, hash string) error {
		users = append(users, User{Name: name, Roles: roles, hash: hash})
		return checkHash(hash)
	})
	return users, err
}

// hasHash reports whether a password has this hash. Argon2 allocates the hash's memory, 64 MB by default.
// FreeOSMemory returns it at once, and before it what else waits for a collection: otherwise all of it would be there
// at the same time as what the next check takes.
func hasHash(password, hash string) (bool, error) {
	debug.FreeOSMemory()
	defer debug.FreeOSMemory()

	return argon2id.ComparePasswordAndHash(password, hash)
}

// checkHash refuses what is weak, what is costly, and anything before, between or behind the parts.
func checkHash(hash string) error {
	p, salt, key, err := argon2id.DecodeHash(hash) // knows version 19 only
	if err != nil || !strings.HasPrefix(hash, fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$", p.Memory, p.Iterations, p.Parallelism)) {
		return errors.New("the password's hash is not one of argon2id as `reporting user` prints it")
	}

	switch {
	case p.Memory > mostMemory, p.Iterations > mostPasses, p.Parallelism > mostLanes, len(salt) > 64, len(key) > 64:
		return errors.New("the password's hash takes too much memory or time; make it again with `reporting user`")
	case p.Parallelism < 1, p.Memory < leastMemory, p.Memory*p.Iterations < leastEffort, len(salt) < 16, len(key) < 32:
		return errors.New("the password's hash is too weak; make it again with `reporting user`")
	}

	return nil
}

const (
	tokenPrefix  = "rpt_"    // says whose a token is that was found where it should not be
	maxToken     = 256       // bytes, hashed on behalf of a stranger
	digestPrefix = "sha256:" // in a token's line
)

// Token is what a program sends instead of signing in: 32 random bytes, so that a plain
// SHA-256 is enough to store.
type Token struct {
	Name   string
	Roles  Roles
	digest [sha256.Size]byte
}

// NewToken makes a token. The text is what the program sends; it cannot be had again.
func NewToken(name string, roles Roles) (text string, t Token, err error) {
	text, digest, err := newSecret(tokenPrefix, name)
	if err == nil && roles.Include(Closer) {
		err = errors.New("the role closer is for people, who sign in")
	}
	return text, Token{Name: name, Roles: roles, digest: digest}, err
}

// NewAdminKey makes a key of the gateway's admin API that speaks for one operator, and its line in
// the gateway's ADMIN_KEYS.
func NewAdminKey(name string) (key, line string, err error) {
	key, digest, err := newSecret("adm_", name)
	return key, name + ":" + digestPrefix + hex.EncodeToString(digest[:]), err
}

func newSecret(prefix, name string) (text string, digest [sha256.Size]byte, err error) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand ends the program instead
	text = prefix + base64.RawURLEncoding.EncodeToString(b[:])
	return text, sha256.Sum256([]byte(text)), checkName(name)
}

// Line is the token's line in REPORT_TOKENS.
func (t *Token) Line() string {
	return t.Name + ":" + t.Roles.String() + ":" + digestPrefix + hex.EncodeToString(t.digest[:])
}

// ParseTokens reads lines "name:role[,role]:sha256:<64 hexadecimal digits of the token's digest>".
func ParseTokens(text string) ([]Token, error) {
	var tokens []Token
	seen := make(map[[sha256.Size]byte]bool)
	err := parseLines(text, func(name string, roles Roles, secret string) error {
		digits, ok := strings.CutPrefix(secret, digestPrefix)
		digest, err := hex.DecodeString(digits)
		if !ok || err != nil || len(digest) != sha256.Size {
			return errors.New(`want "sha256:" and 64 hexadecimal digits, as ` + "`reporting token`" + ` prints them`)
		}

		if roles.Include(Closer) {
			return errors.New("the role closer is for people, who sign in")
		}

		t := Token{Name: name, Roles: roles, digest: [sha256.Size]byte(digest)}
		if seen[t.digest] {
			return errors.New("another name has the same token")
		}
		if t.digest == sha256.Sum256(nil) {
			return errors.New("this is the digest of nothing; make a token with `reporting token`")
		}

		seen[t.digest] = true
		tokens = append(tokens, t)

		return nil
	})

	return tokens, err
}

// findToken compares with every token, so that the time does not depend on the result.
func findToken(tokens []Token, text string) *Token {
	if len(text) > maxToken {
		return nil
	}

	given := sha256.Sum256([]byte(text))
	found := -1
	for i := range tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(given[:], tokens[i].digest[:]), i, found)
	}

	if found < 0 {
		return nil
	}

	return &tokens[found]
}

// Role is what a user or a token may do (decisions, "Finance").
type Role = string

// The roles.
const (
	Operator = "operator" // runs accounts, limits, webhooks, fleets
	Finance  = "finance"  // reads and downloads reports
	Closer   = "closer"   // holds and closes months, and books corrections; people of finance only
)

// Roles are the roles of one user or token, each once.
type Roles []Role

// ParseRoles reads one or several roles with commas. The error does not repeat the text, which
// may be a secret in a line with a missing part.
func ParseRoles(text string) (Roles, error) {
	var roles Roles
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains([]Role{Operator, Finance, Closer}, name) || slices.Contains(roles, name) {
			return nil, errors.New("want operator, finance and closer as roles, or some of them, separated by commas")
		}
		roles = append(roles, name)
	}

	if roles.Include(Closer) && !roles.Include(Finance) {
		return nil, errors.New("who has the role closer needs finance, too")
	}

	return roles, nil
}

// String is the inverse of ParseRoles.
func (rs Roles) String() string { return strings.Join(rs, ",") }

// Include reports whether one of the wanted roles is among them.
func (rs Roles) Include(wanted ...Role) bool {
	return slices.ContainsFunc(wanted, func(r Role) bool { return slices.Contains(rs, r) })
}
