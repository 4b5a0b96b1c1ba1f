package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// tokenPrefix says whose a token is that was found in a place where it should
// not be.
const tokenPrefix = "rpt_"

// maxToken bounds what is hashed on behalf of a stranger.
const maxToken = 256

// digestPrefix names the digest in a token's line.
const digestPrefix = "sha256:"

// Token is what a program shows instead of signing in: 32 random bytes, so that
// a plain SHA-256 is enough to keep.
type Token struct {
	Name   string
	Roles  Roles
	digest [sha256.Size]byte
}

// NewToken makes a token. The text is what the program sends; it cannot be had
// again.
func NewToken(name string, roles Roles) (text string, t Token, err error) {
	if err := checkName(name); err != nil {
		return "", Token{}, err
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand ends the program instead
	text = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return text, Token{Name: name, Roles: roles, digest: sha256.Sum256([]byte(text))}, nil
}

// Line is the token's line in REPORT_TOKENS.
func (t *Token) Line() string {
	return t.Name + ":" + t.Roles.String() + ":" + digestPrefix + hex.EncodeToString(t.digest[:])
}

// ParseTokens reads lines "name:role[,role]:sha256:<64 hexadecimal digits>", the
// digest of the token's text. Errors name the line, never its digest: an unknown
// role, a name or a token that occurs twice, a digest that is none.
func ParseTokens(text string) ([]Token, error) {
	var tokens []Token
	seen := make(map[[sha256.Size]byte]bool)
	err := parseLines(text, func(n named, secret string) error {
		t := Token{Name: n.name, Roles: n.roles}
		digits, ok := strings.CutPrefix(secret, digestPrefix)
		if !ok || len(digits) != hex.EncodedLen(len(t.digest)) {
			return errNoDigest
		}
		if _, err := hex.Decode(t.digest[:], []byte(digits)); err != nil {
			return errNoDigest
		}
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
	if err != nil {
		return nil, err
	}
	return tokens, nil
}

var errNoDigest = errors.New(`want "sha256:" and 64 hexadecimal digits, as ` + "`reporting token`" + ` prints them`)

// findToken compares with every token, so that the time tells neither whether
// one fits nor which.
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
