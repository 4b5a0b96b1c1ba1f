package operations

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Sessions are the panel's.
type Sessions struct{ core *core.Client }

// NewSessions returns the calls of sessions.
func NewSessions(c *core.Client) *Sessions { return &Sessions{core: c} }

// How long a session of the panel lasts at most, and without a request.
const (
	SessionLifetime = 12 * time.Hour
	SessionIdle     = 30 * time.Minute
)

// sessionTouch saves writes: a session may end this much early, never late.
const sessionTouch = time.Minute

const sessionIDSize = 32

const MaxRoles = 16

// Session is a browser that has signed in to the panel.
type Session struct {
	User  string
	Roles []string
	// Credential proves that this session, with this id, was made for the user by who knows what the user
	// signs in with. Readers calculate it again: a session does not outlive a changed password, and
	// whoever can write to Redis makes none.
	Credential [32]byte
	CSRF       string // proves that a form is the panel's own; 43 characters
	CreatedAt  time.Time
	SeenAt     time.Time // of the last request, to within a minute
}

// NewSessionID returns the id of a session that is to be created: 43 random characters of base64url.
func NewSessionID() string { return randomText() }

// Create stores a new session under the SHA-256 of its id: Redis does not learn the id. It sets the CSRF
// token and the times.
func (l *Sessions) Create(ctx context.Context, id string, s Session) (created *Session, err error) {
	if len(s.Roles) > MaxRoles {
		return nil, fmt.Errorf("%d roles, at most %d can be stored", len(s.Roles), MaxRoles)
	}

	s.CreatedAt = l.core.Now().Truncate(time.Millisecond)
	s.SeenAt = s.CreatedAt
	s.CSRF = randomText()
	return &s, core.Failed("storing a session", l.core.Redis.Set(ctx, l.SessionKey(id), EncodeSession(&s), SessionIdle).Err())
}

// Get finds a session and extends it. TOKEN_INVALID for every other id.
func (l *Sessions) Get(ctx context.Context, id string) (*Session, error) {
	if len(id) != base64.RawURLEncoding.EncodedLen(sessionIDSize) {
		return nil, noSession()
	}

	key := l.SessionKey(id)
	record, err := l.core.Redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, noSession()
	}

	if err != nil {
		return nil, core.Failed("reading a session", err)
	}

	s, err := DecodeSession(record)
	if err != nil {
		return nil, err
	}

	now := l.core.Now().Truncate(time.Millisecond)
	left := min(SessionIdle, s.CreatedAt.Add(SessionLifetime).Sub(now))
	if left <= 0 || now.Sub(s.SeenAt) >= SessionIdle {
		return nil, noSession() // Redis removes it, by its own clock
	}
	if now.Sub(s.SeenAt) < sessionTouch {
		return s, nil
	}

	s.SeenAt = now
	// XX: a session that was ended in between stays ended.
	err = l.core.Redis.SetArgs(ctx, key, EncodeSession(s), redis.SetArgs{Mode: "XX", TTL: left}).Err()
	if errors.Is(err, redis.Nil) {
		return nil, noSession()
	}

	return s, core.Failed("keeping a session", err)
}

// End removes a session on every replica at once. An unknown one is no error.
func (l *Sessions) End(ctx context.Context, id string) error {
	return core.Failed("ending a session", l.core.Redis.Del(ctx, l.SessionKey(id)).Err())
}

func noSession() error {
	return delivery.Refuse(delivery.CodeTokenInvalid, "the session is unknown or has ended; sign in")
}

// SessionKey returns the key of the session with that id: sessions:{<env>g}<SHA-256 of the id>.
func (l *Sessions) SessionKey(id string) string {
	digest := sha256.Sum256([]byte(id))
	return l.keys() + string(digest[:])
}

// sessionKeys returns what the keys of all sessions begin with.
func (l *Sessions) keys() string { return core.SessionsPrefix + l.core.Global.Prefix }

// randomText is 32 random bytes in 43 characters for cookies, headers and forms.
func randomText() string {
	var b [sessionIDSize]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func codeSession(c *core.Codec, s *Session) {
	roles := len(s.Roles)
	c.All(&s.User, &roles)
	if !c.Writing && roles != 0 {
		s.Roles = make([]string, min(uint(roles), MaxRoles))
	}

	for i := range s.Roles {
		c.All(&s.Roles[i])
	}

	c.All(s.Credential[:], &s.CSRF, &s.CreatedAt, &s.SeenAt)
}

func EncodeSession(s *Session) []byte { return core.Encode(func(c *core.Codec) { codeSession(c, s) }) }

func DecodeSession(record string) (*Session, error) {
	s := new(Session)
	return s, core.Decode("session record", record, func(c *core.Codec) { codeSession(c, s) })
}

// How often a password may be tried, rightly or not: against who guesses, tries many names, uses
// many machines, or guesses where the user has signed in before.
var (
	signInsOfUserAtAddress = redis_rate.Limit{Rate: 1, Burst: 5, Period: time.Minute}
	signInsFromAddress     = redis_rate.Limit{Rate: 10, Burst: 30, Period: time.Minute}
	signInsOfUser          = redis_rate.Limit{Rate: 5, Burst: 100, Period: time.Minute}
	signInsOfDevice        = redis_rate.Limit{Rate: 5, Burst: 10, Period: time.Minute}
)

// CountSignIn counts an attempt before the password is checked. RATE_LIMITED with
// RetryAfter for the user, the address, or both together.
func (l *Sessions) CountSignIn(ctx context.Context, user, address string) error {
	return l.countSignIn(ctx,
		core.AttemptGuard{Key: l.signInKey("both", user, address), Limit: signInsOfUserAtAddress},
		core.AttemptGuard{Key: l.signInKey("address", address), Limit: signInsFromAddress},
		core.AttemptGuard{Key: l.signInKey("user", user), Limit: signInsOfUser})
}

// CountKnownSignIn is CountSignIn where the user has signed in before, by itself.
func (l *Sessions) CountKnownSignIn(ctx context.Context, user, device string) error {
	return l.countSignIn(ctx, core.AttemptGuard{Key: l.signInKey("device", user, device), Limit: signInsOfDevice})
}

func (l *Sessions) countSignIn(ctx context.Context, guards ...core.AttemptGuard) error {
	refusing, wait, err := l.core.CountAttempt(ctx, guards...)
	if refusing == "" {
		return err
	}
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: wait, Message: "too many attempts to sign in; wait as Retry-After says"}
}

// ForgiveSignIns resets the user's attempts at an address, after the right password.
func (l *Sessions) ForgiveSignIns(ctx context.Context, user, address string) error {
	return core.Failed("forgetting sign-ins", l.core.Rates.Reset(ctx, l.signInKey("both", user, address)))
}

// signInKey returns the key under which attempts of one kind are counted. It has the same length whatever is
// typed as a name.
func (l *Sessions) signInKey(kind string, parts ...string) string {
	var b []byte
	for _, part := range slices.Concat([]string{kind}, parts) {
		b = core.AppendText(b, part)
	}
	digest := sha256.Sum256(b)
	return l.keys() + "attempts:" + string(digest[:])
}
