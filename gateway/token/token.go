// Package token issues and verifies the bearer tokens of vendors and fleets:
// JWTs signed with HMAC-SHA256 (spec, "Authentication").
//
// Any replica verifies a token without asking anyone: everything is in the token and
// in the keys that all replicas share. The header names its key (kid), so keys rotate:
// add the new one in front, and take the old one out when its last token has expired.
// The audience names the API and the environment, so a fleet's token opens no vendor
// endpoint, and a sandbox token is refused in production even with the same keys.
//
// Whether an account exists or is suspended, and whether its tokens were revoked, is
// the ledger's to say.
package token

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"vendorapi/internal/config"
)

// Lifetime is how long a token is valid (spec, "Token": expiresIn 3600).
const Lifetime = time.Hour

const issuer = "vendorapi"

// API is what a token opens.
type API string

// The two APIs with tokens.
const (
	Vendor API = "vendor"
	Fleet  API = "fleet"
)

// Why a token is refused.
var (
	// ErrExpired is a token that was good in every other way.
	ErrExpired = errors.New("the token has expired")
	// ErrInvalid is any other token.
	ErrInvalid = errors.New("the token is not valid")
)

// Authority issues and verifies one API's tokens. It is safe for concurrent use.
type Authority struct {
	keys     config.Keyring
	audience string
	parser   *jwt.Parser
	verified cache
}

// NewAuthority takes the environment "production" or "sandbox".
func NewAuthority(keys config.Keyring, api API, environment string) (*Authority, error) {
	if len(keys.Keys[keys.Current]) == 0 {
		return nil, errors.New("tokens: there is no current signing key")
	}

	audience := string(api) + ":" + environment
	return &Authority{
		keys:     keys,
		audience: audience,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithIssuer(issuer),
			jwt.WithAudience(audience),
			jwt.WithStrictDecoding(),
		),
		verified: newCache(),
	}, nil
}

// Issue signs a token for the account or fleet, good for Lifetime from now.
func (a *Authority) Issue(subject [16]byte, now time.Time) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer:    issuer,
		Subject:   uuid.UUID(subject).String(),
		Audience:  jwt.ClaimStrings{a.audience},
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime)),
	})

	t.Header["kid"] = a.keys.Current
	signed, err := t.SignedString(a.keys.Keys[a.keys.Current])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}

	return signed, nil
}

// futureTolerance is by how much a token may be dated ahead of all clocks: the gateway that issued it may
// be half a second ahead, and after a revocation dates tokens two seconds ahead.
const futureTolerance = 5 * time.Second

// Verify is whom the token was issued for, and when in Unix seconds. The error is
// ErrExpired or ErrInvalid. raw is not kept.
//
// earlier and later are what two clocks say. A token has expired when both say so, and is not valid
// when both say that it is of the future: when one of them jumps, nobody is shut out.
func (a *Authority) Verify(raw []byte, earlier, later time.Time) (subject [16]byte, issued int64, err error) {
	v, ok := a.verified.get(raw)
	if !ok {
		text := string(raw)
		v, err = a.parse(text)
		if err != nil {
			return subject, 0, err
		}
		a.verified.put(text, v)
	}

	isOfFuture := v.begins > later.Add(futureTolerance).Unix()
	if isOfFuture {
		return subject, 0, ErrInvalid
	}
	if earlier.Unix() >= v.expires {
		return subject, 0, ErrExpired
	}

	return v.subject, v.issued, nil
}

// parse verifies everything but the token's times, which each use compares with the clocks.
func (a *Authority) parse(text string) (verified, error) {
	if len(text) > maxLength || strings.ContainsFunc(text, outsideAlphabet) {
		return verified{}, ErrInvalid
	}

	var said claims
	if _, err := a.parser.ParseWithClaims(text, &said, a.keyOf); err != nil {
		return verified{}, ErrInvalid
	}

	subject, err := uuid.Parse(said.Subject)
	if err != nil || len(said.Subject) != 36 {
		return verified{}, ErrInvalid
	}

	begins := max(said.IssuedAt, said.NotBefore)

	return verified{subject: subject, issued: int64(said.IssuedAt), begins: int64(begins), expires: int64(said.ExpiresAt)}, nil
}

// maxLength is far more than an issued token has, whose key's id is the longest.
const maxLength = 1024

// outsideAlphabet refuses what the decoder would pass over, such as line ends:
// one token has one text.
func outsideAlphabet(r rune) bool {
	letter := 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9'
	return !letter && r != '-' && r != '_' && r != '.'
}

func (a *Authority) keyOf(t *jwt.Token) (any, error) {
	kid, _ := t.Header["kid"].(string)
	key, ok := a.keys.Keys[kid]
	if !ok {
		return nil, ErrInvalid
	}
	return key, nil
}

// SecretPrefix lets scanners recognise a leaked client secret.
const SecretPrefix = "vas_"

// NewSecret is a client secret: SecretPrefix and 32 random bytes in base64url.
// Only its SHA-256 is stored; 256 random bits need no slow hash.
func NewSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails: the runtime ends the process first
	return SecretPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// cacheSize is how many verified tokens one generation holds, in about 5 MB.
const cacheSize = 16_384

// cache remembers tokens whose signature has been verified. Only such tokens enter, so
// strangers cannot flush it. A full young generation becomes the old one, which is
// dropped; a token in use moves back to the young one.
type cache struct {
	mu         *sync.RWMutex
	young, old map[string]verified
}

type verified struct {
	subject [16]byte

	// Unix seconds. The token is good from begins on, and before expires.
	issued, begins, expires int64
}

func newCache() cache {
	return cache{mu: new(sync.RWMutex), young: make(map[string]verified)}
}

func (c *cache) get(token []byte) (verified, bool) {
	c.mu.RLock()
	v, young := c.young[string(token)]
	if young {
		c.mu.RUnlock()
		return v, true
	}

	v, old := c.old[string(token)]
	c.mu.RUnlock()
	if old {
		c.put(string(token), v)
	}

	return v, old
}

func (c *cache) put(token string, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= cacheSize {
		c.old, c.young = c.young, make(map[string]verified, cacheSize)
	}
	c.young[token] = v
}

// claims are what a token says. Times are read and checked here, in place of the
// library's fields, which take a time as text, with a fraction, and of any size: Issue
// writes whole seconds, so whatever else comes was not written by it.
type claims struct {
	jwt.RegisteredClaims
	ExpiresAt second `json:"exp"`
	NotBefore second `json:"nbf"`
	IssuedAt  second `json:"iat"`
}

// second is a Unix time; 0 for none.
type second int64

// maxDigits keeps times, and sums of them, within what calendars have.
const maxDigits = 12

// UnmarshalJSON reads digits and nothing else; null and signs are errors.
func (s *second) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil || len(text) > maxDigits {
		return fmt.Errorf("%.20q is no time in whole seconds", text)
	}
	*s = second(n)
	return nil
}

// Validate is called by the library. It refuses what Issue never signs: a token without
// its times, or for longer than Lifetime. It asks no clock, as that may have been set back.
func (c *claims) Validate() error {
	lacksTimes := c.IssuedAt == 0 || c.ExpiresAt == 0
	if lacksTimes || c.ExpiresAt-c.IssuedAt > second(Lifetime/time.Second) {
		return ErrInvalid
	}
	return nil
}
