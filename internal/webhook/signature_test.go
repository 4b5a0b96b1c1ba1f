package webhook

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The secret of the published Standard Webhooks example has 24 bytes; this service's have
// 32, so the expected values below come from openssl.
const testSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

//rule:authentication/5 request-headers/X-Service-Signature webhooks/the-secret-is-shown-as
func TestSign_IsWhatOpenSSLComputes(t *testing.T) {
	const want = "sha256=4685c9d16f64a759d47846eae0e4f6c75bedef25470e9a0e099c5a56f2f5571f"
	got := Sign(testSecret, []byte(`{"test": 2432232314}`))
	check(t, got == want, "got %s, want %s", got, want)
}

//rule:webhooks/the-secret-is-shown-as
func TestSignStandard_IsWhatOpenSSLComputes(t *testing.T) {
	const want = "v1,O4Gjv1HqPqsMrjmczoggs/sWA8gZD0VyHG+fLh4+ktI="
	at := time.Unix(1614265330, 999_999_999)
	got, err := SignStandard("msg_p5jXN8AQM9LWM0D4loKWxJek", at, []byte(`{"test": 2432232314}`), testSecret)
	check(t, err == nil && got == want, "got %s, %v, want %s", got, err, want)
}

//rule:webhooks/the-secret-is-shown-as decisions/webhook-url-and-secret
func TestNewSecret_IsFreshAndWellFormed(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	check(t, a != b, "two secrets are equal")
	for _, s := range []string{a, b, testSecret} {
		_, err := decodeSecret(s)
		check(t, err == nil, "%s: %v", s, err)
	}
}

//rule:webhooks/the-secret-is-shown-as
func TestDecodeSecret_RefusesOtherForms(t *testing.T) {
	raw := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for name, s := range map[string]string{
		"empty":           "",
		"no prefix":       raw(32),
		"prefix only":     "whsec_",
		"short":           "whsec_" + raw(31),
		"long":            "whsec_" + raw(33),
		"no padding":      "whsec_" + strings.TrimRight(raw(32), "="),
		"line break":      "whsec_" + raw(32)[:20] + "\n" + raw(32)[20:],
		"not base64":      "whsec_" + strings.Repeat("!", 44),
		"trailing bits":   strings.Replace(testSecret, "8=", "9=", 1),
		"case of prefix":  "WHSEC_" + raw(32),
		"url alphabet":    "whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 32)),
		"space around it": " " + testSecret,
	} {
		_, err := decodeSecret(s)
		check(t, err != nil, "%s: %q was accepted", name, s)
	}
}

func TestSignStandard_RefusesBrokenSecrets(t *testing.T) {
	if got, err := SignStandard("id", time.Unix(0, 0), nil); err == nil {
		t.Errorf("without a secret: %q", got)
	}
	if got, err := SignStandard("id", time.Unix(0, 0), nil, testSecret, "whsec_x"); err == nil || got != "" {
		t.Errorf("with a broken secret: %q, %v", got, err)
	}
}

// During a rotation both secrets sign, each as it would alone.
func TestSignStandard_SignsWithEverySecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		id := rapid.String().Draw(t, "id")
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "at"), 0)
		var alone []string
		secrets := []string{NewSecret(), NewSecret()}
		for _, secret := range secrets {
			one, err := SignStandard(id, at, body, secret)
			must(t, err)
			alone = append(alone, one)
		}

		both, err := SignStandard(id, at, body, secrets...)
		must(t, err)
		require(t, both == strings.Join(alone, " ") && alone[0] != alone[1], "%s of %v", both, alone)
	})
}

func FuzzCheckSecret(f *testing.F) {
	f.Add(testSecret)
	f.Add("whsec_")
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := decodeSecret(s)
		check(t, err != nil || s == secretPrefix+base64.StdEncoding.EncodeToString(raw), "%q is a second spelling of one secret", s)
	})
}
