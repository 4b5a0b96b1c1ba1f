package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Verify is nil when a webhook is the service's and fresh. Call it with the
// raw bytes of the body, before parsing them. secret is the whole "whsec_…".
func Verify(secret string, header http.Header, body []byte, now time.Time) error {
	// 1. The service's own signature: HMAC of the body, keyed with the text of the secret.
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	want := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	if !hmac.Equal([]byte(want), []byte(header.Get("X-Service-Signature"))) {
		return errors.New("signature does not match")
	}

	// 2. Standard Webhooks: id, time and body, keyed with the decoded secret. It protects against replays.
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return errors.New("timestamp is missing, too old or too new")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return errors.New("the secret is not whsec_ and base64")
	}
	mac = hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	want = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, signature := range strings.Fields(header.Get("webhook-signature")) { // two of them after a rotation
		if hmac.Equal([]byte(want), []byte(signature)) {
			return nil
		}
	}
	return errors.New("webhook-signature does not match")
}
