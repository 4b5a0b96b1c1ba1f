package webhook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The secret of the published Standard Webhooks example has 24 bytes; ours have
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

//rule:authentication/5
func TestVerify_AcceptsTheExactSignatureOnly(t *testing.T) {
	body := []byte(`{"eventId":"evt_1"}`)
	good := Sign(testSecret, body)
	for name, c := range map[string]struct {
		secret, header string
		body           []byte
		want           bool
	}{
		"good":              {testSecret, good, body, true},
		"another body":      {testSecret, good, append(bytes.Clone(body), ' '), false},
		"another secret":    {NewSecret(), good, body, false},
		"empty header":      {testSecret, "", body, false},
		"without a prefix":  {testSecret, strings.TrimPrefix(good, "sha256="), body, false},
		"upper-case digits": {testSecret, "sha256=" + strings.ToUpper(good[7:]), body, false},
		"cut short":         {testSecret, good[:len(good)-1], body, false},
	} {
		got := Verify(c.secret, c.header, c.body)
		check(t, got == c.want, "%s: got %v", name, got)
	}
}

//rule:webhooks/the-secret-is-shown-as decisions/webhook-url-and-secret
func TestNewSecret_IsFreshAndWellFormed(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	check(t, a != b, "two secrets are equal")
	for _, s := range []string{a, b, testSecret} {
		err := CheckSecret(s)
		check(t, err == nil, "%s: %v", s, err)
	}
}

//rule:webhooks/the-secret-is-shown-as
func TestCheckSecret_RefusesOtherForms(t *testing.T) {
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
		check(t, CheckSecret(s) != nil, "%s: %q was accepted", name, s)
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

//rule:webhooks/exactly-the-spec-s-headers-and
func TestVerifyStandard_WantsIDTimeBodyAndSecret(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	body := []byte("{}")
	old, current := NewSecret(), NewSecret()
	header, err := SignStandard("evt_1", now, body, current, old)
	must(t, err)
	stamp := strconv.FormatInt(now.Unix(), 10)
	const tolerance = 5 * time.Minute
	for name, c := range map[string]struct {
		id, stamp, header, body string
		now                     time.Time
		secrets                 []string
		want                    error
	}{
		"current secret":       {"evt_1", stamp, header, "{}", now, []string{current}, nil},
		"old secret":           {"evt_1", stamp, header, "{}", now, []string{old}, nil},
		"either secret":        {"evt_1", stamp, header, "{}", now, []string{NewSecret(), old}, nil},
		"unknown version":      {"evt_1", stamp, "v1a,x " + header, "{}", now, []string{old}, nil},
		"edge of tolerance":    {"evt_1", stamp, header, "{}", now.Add(tolerance), []string{old}, nil},
		"receiver behind":      {"evt_1", stamp, header, "{}", now.Add(-tolerance), []string{old}, nil},
		"replayed later":       {"evt_1", stamp, header, "{}", now.Add(tolerance + time.Second), []string{old}, ErrTimestamp},
		"from the future":      {"evt_1", stamp, header, "{}", now.Add(-tolerance - time.Second), []string{old}, ErrTimestamp},
		"absurdly far ahead":   {"evt_1", "9223372036854775807", header, "{}", now, []string{old}, ErrTimestamp},
		"far in the future":    {"evt_1", "9000000000000", header, "{}", now, []string{old}, ErrTimestamp},
		"no timestamp":         {"evt_1", "", header, "{}", now, []string{old}, ErrTimestamp},
		"timestamp in words":   {"evt_1", "noon", header, "{}", now, []string{old}, ErrTimestamp},
		"another timestamp":    {"evt_1", strconv.FormatInt(now.Unix()+1, 10), header, "{}", now, []string{old}, ErrSignature},
		"another id":           {"evt_2", stamp, header, "{}", now, []string{old}, ErrSignature},
		"another body":         {"evt_1", stamp, header, "{ }", now, []string{old}, ErrSignature},
		"another secret":       {"evt_1", stamp, header, "{}", now, []string{NewSecret()}, ErrSignature},
		"no secret":            {"evt_1", stamp, header, "{}", now, nil, ErrSignature},
		"no header":            {"evt_1", stamp, "", "{}", now, []string{old}, ErrSignature},
		"version without sign": {"evt_1", stamp, "v1, v1", "{}", now, []string{old}, ErrSignature},
	} {
		err := VerifyStandard(c.id, c.stamp, c.header, []byte(c.body), c.now, tolerance, c.secrets...)
		check(t, errors.Is(err, c.want), "%s: got %v, want %v", name, err, c.want)
	}
	if err := VerifyStandard("evt_1", stamp, header, body, now, tolerance, "whsec_x"); !errors.Is(err, errSecret) {
		t.Errorf("broken secret: %v", err)
	}
}

func TestSignatures_VerifyForAnyBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		id := rapid.String().Draw(t, "id")
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "at"), 0)
		secret := NewSecret()
		header, err := SignStandard(id, at, body, NewSecret(), secret)
		must(t, err)
		if err := VerifyStandard(id, strconv.FormatInt(at.Unix(), 10), header, body, at, 0, secret); err != nil {
			t.Fatal(err)
		}
		require(t, Verify(secret, Sign(secret, body), body), "a signature does not verify")
	})
}

func FuzzVerify(f *testing.F) {
	f.Add(Sign(testSecret, []byte("{}")), []byte("{}"))
	f.Add("sha256=", []byte(""))
	f.Add("", []byte("x"))
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		got, want := Verify(testSecret, header, body), header == Sign(testSecret, body)
		check(t, got == want, "Verify(%q) is %v", header, got)
	})
}

func FuzzVerifyStandard(f *testing.F) {
	header, _ := SignStandard("evt_1", time.Unix(1_800_000_000, 0), []byte("{}"), testSecret)
	f.Add("evt_1", "1800000000", header, []byte("{}"))
	f.Add("evt_1", "-1", "v1,", []byte(""))
	f.Fuzz(func(t *testing.T, id, timestamp, header string, body []byte) {
		now := time.Unix(1_800_000_000, 0)
		if VerifyStandard(id, timestamp, header, body, now, time.Hour, testSecret) != nil {
			return
		}
		seconds, err := strconv.ParseInt(timestamp, 10, 64)
		require(t, err == nil && seconds >= now.Unix()-3600 && seconds <= now.Unix()+3600, "timestamp %q was accepted", timestamp)
		key, _ := decodeSecret(testSecret)
		want := signStandard(key, id, timestamp, body)
		check(t, strings.Contains(header, want), "%q was accepted without %q", header, want)
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
