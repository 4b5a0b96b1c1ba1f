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
	secretPrefix = "whsec_"
	secretSize   = 32 // bytes
)

var errSecret = errors.New(`a webhook secret is "whsec_" and the base64 of 32 bytes`)

// NewSecret issues a webhook secret: "whsec_" and the base64 of 32 random bytes
// (decisions, "Webhooks").
func NewSecret() string {
	var raw [secretSize]byte
	rand.Read(raw[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(raw[:])
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
// of the whole secret as it is shown, prefix included (decisions, "Webhooks").
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// SignStandard is the value of webhook-signature: one "v1,<base64>" per secret,
// separated by spaces, each the HMAC-SHA256 of "id.timestamp.body" keyed with
// the 32 bytes that the secret encodes. During a rotation both secrets sign.
// id must be the value of webhook-id, at that of webhook-timestamp in whole
// seconds. It fails without a secret and on one of another form than NewSecret's.
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
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}

	return strings.Join(signatures, " "), nil
}
