package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix    = "whsec_"
	secretSize      = 32 // bytes
	signaturePrefix = "sha256="
	standardPrefix  = "v1,"
)

// What is wrong with a delivery that VerifyStandard refuses.
var (
	// ErrTimestamp means that the timestamp is not a number of seconds or is
	// too far from now: a replay, or a clock that is wrong.
	ErrTimestamp = errors.New("webhook timestamp is outside the tolerance")
	// ErrSignature means that no signature matches any secret.
	ErrSignature = errors.New("webhook signature does not match")
)

var errSecret = errors.New(`a webhook secret is "whsec_" and the base64 of 32 bytes`)

// NewSecret issues a webhook secret: "whsec_" and the base64 of 32 random bytes
// (design section 7).
func NewSecret() string {
	var raw [secretSize]byte
	rand.Read(raw[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(raw[:])
}

// CheckSecret reports why a string cannot be a secret of NewSecret's form.
func CheckSecret(s string) error {
	_, err := decodeSecret(s)
	return err
}

func decodeSecret(s string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(s, secretPrefix)
	// The decoder skips line breaks, which a secret must not contain.
	if !ok || strings.ContainsAny(encoded, "\r\n") {
		return nil, errSecret
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != secretSize {
		return nil, errSecret
	}
	return raw, nil
}

// Sign is the value of X-Service-Signature: "sha256=" and the lower-case hex
// HMAC-SHA256 of the raw body (spec, "Authentication" 5). The key is the bytes
// of the whole secret as it is shown, prefix included (design section 7).
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	var sum [sha256.Size]byte
	out := append(make([]byte, 0, len(signaturePrefix)+2*sha256.Size), signaturePrefix...)
	return string(hex.AppendEncode(out, mac.Sum(sum[:0])))
}

// Verify reports whether the header signs the body, in constant time.
func Verify(secret, header string, body []byte) bool {
	return hmac.Equal([]byte(Sign(secret, body)), []byte(header))
}

// SignStandard is the value of webhook-signature: one "v1,<base64>" per secret,
// separated by spaces, each the HMAC-SHA256 of "id.timestamp.body" keyed with
// the 32 bytes that the secret encodes. During a rotation both secrets sign.
// id must be the value of webhook-id, at that of webhook-timestamp in whole
// seconds. It fails without a secret and on one that CheckSecret refuses.
func SignStandard(id string, at time.Time, body []byte, secrets ...string) (string, error) {
	if len(secrets) == 0 {
		return "", errors.New("signing a webhook needs at least one secret")
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return "", fmt.Errorf("secret %d: %w", i+1, err)
		}
		signatures[i] = signStandard(key, id, timestamp, body)
	}
	return strings.Join(signatures, " "), nil
}

func signStandard(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return standardPrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// VerifyStandard checks the three Standard Webhooks headers of a delivery: the
// timestamp lies within the tolerance of now on either side, and at least one
// signature matches at least one secret, in constant time. Signatures of other
// versions than v1 are passed over. The error is ErrTimestamp, ErrSignature, or
// says what is wrong with a secret.
func VerifyStandard(id, timestamp, header string, body []byte, now time.Time, tolerance time.Duration, secrets ...string) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return ErrTimestamp
	}
	matched := false
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return fmt.Errorf("secret %d: %w", i+1, err)
		}
		want := []byte(signStandard(key, id, timestamp, body))
		for got := range strings.FieldsSeq(header) {
			matched = hmac.Equal(want, []byte(got)) || matched
		}
	}
	if !matched {
		return ErrSignature
	}
	return nil
}
