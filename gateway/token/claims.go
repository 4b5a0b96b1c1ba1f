package token

import (
	"fmt"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// claims are what a token says. They are read more strictly than the library
// does, which takes a time as text, with a fraction, and of any size: Issue
// writes whole seconds, so whatever else comes was not written by it.
type claims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audience  jwt.ClaimStrings `json:"aud"`
	ExpiresAt second           `json:"exp"`
	NotBefore second           `json:"nbf"`
	IssuedAt  second           `json:"iat"`
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

func (s second) date() *jwt.NumericDate {
	if s == 0 {
		return nil
	}
	return jwt.NewNumericDate(time.Unix(int64(s), 0))
}

// ofOurLifetime refuses what Issue never signs: a token without its time of issue, or for
// longer than Lifetime. It asks no clock, which may have been set back.
func (c *claims) ofOurLifetime() bool {
	return c.IssuedAt > 0 && c.ExpiresAt-c.IssuedAt <= second(Lifetime/time.Second)
}

// The library asks for the claims in these forms.

func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.ExpiresAt.date(), nil }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return c.NotBefore.date(), nil }
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return c.IssuedAt.date(), nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return c.Audience, nil }
func (c *claims) GetIssuer() (string, error)                   { return c.Issuer, nil }
func (c *claims) GetSubject() (string, error)                  { return c.Subject, nil }
