package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"vendorapi/internal/config"
)

var (
	now     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	subject = [16]byte(uuid.MustParse("5d9a6b0e-8f0e-4c3c-9b1a-3f0a1c2d4e5f"))
)

func key(b byte) []byte { return []byte(strings.Repeat(string(rune(b)), config.KeySize)) }

func ring(kids ...string) config.Keyring {
	k := config.Keyring{Current: kids[0], Keys: map[string][]byte{}}
	for _, kid := range kids {
		k.Keys[kid] = key(kid[0])
	}
	return k
}

func authority(t testing.TB, keys config.Keyring, api API, environment string) *Authority {
	t.Helper()
	a, err := NewAuthority(keys, api, environment)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t testing.TB, a *Authority, at time.Time) []byte {
	t.Helper()
	text, err := a.Issue(subject, at)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

func TestAuthority_AnyReplicaVerifies(t *testing.T) {
	issued := issue(t, authority(t, ring("a"), Vendor, "production"), now)
	got, err := authority(t, ring("a"), Vendor, "production").Verify(issued, now)
	if err != nil || got != subject {
		t.Errorf("got %x, %v", got, err)
	}
}

//rule:token/expiresIn authentication/2 limits/other-constants/token-lifetime
func TestAuthority_ExpiresAfterAnHour(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	issued := issue(t, a, now)
	for _, fresh := range []bool{false, true} { // cached, then parsed anew
		if fresh {
			a = authority(t, ring("a"), Vendor, "production")
		}
		if _, err := a.Verify(issued, now.Add(Lifetime-time.Second)); err != nil {
			t.Errorf("one second before: %v", err)
		}
		if _, err := a.Verify(issued, now.Add(Lifetime)); !errors.Is(err, ErrExpired) {
			t.Errorf("after: %v", err)
		}
	}
	// A token that had expired before this process ever saw it, by the real
	// clock too.
	old := issue(t, a, time.Now().Add(-2*time.Hour))
	if _, err := authority(t, ring("a"), Vendor, "production").Verify(old, time.Now()); !errors.Is(err, ErrExpired) {
		t.Errorf("old token: %v", err)
	}
}

func TestAuthority_KeysRotate(t *testing.T) {
	before := authority(t, ring("a"), Vendor, "production")
	during := authority(t, ring("b", "a"), Vendor, "production")
	after := authority(t, ring("b"), Vendor, "production")
	oldToken, newToken := issue(t, before, now), issue(t, during, now)
	if _, err := during.Verify(oldToken, now); err != nil {
		t.Errorf("old token during rotation: %v", err)
	}
	if _, err := after.Verify(newToken, now); err != nil {
		t.Errorf("new token after rotation: %v", err)
	}
	if _, err := after.Verify(oldToken, now); !errors.Is(err, ErrInvalid) {
		t.Errorf("old token after its key was retired: %v", err)
	}
}

func TestAuthority_Refuses(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	good := string(issue(t, a, now))
	claims := jwt.MapClaims{
		"iss": issuer, "sub": uuid.UUID(subject).String(), "aud": "vendor:production",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	sign := func(method jwt.SigningMethod, key any, kid any, changes jwt.MapClaims) string {
		merged := maps.Clone(claims)
		maps.Copy(merged, changes)
		for name, value := range merged {
			if value == nil {
				delete(merged, name)
			}
		}
		token := jwt.NewWithClaims(method, merged)
		token.Header["kid"] = kid
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	hs := func(changes jwt.MapClaims) string { return sign(jwt.SigningMethodHS256, key('a'), "a", changes) }
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	if _, err := a.Verify([]byte(hs(nil)), now); err != nil {
		t.Fatalf("the untouched token of this test is refused: %v", err)
	}
	for name, text := range map[string]string{
		"empty":                "",
		"no token":             "abc",
		"two parts":            parts[0] + "." + parts[1],
		"four parts":           good + ".x",
		"no signature":         parts[0] + "." + parts[1] + ".",
		"other signature":      parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(key('x')),
		"changed claims":       parts[0] + "." + strings.Split(hs(jwt.MapClaims{"sub": uuid.NewString()}), ".")[1] + "." + parts[2],
		"alg none":             sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "a", nil),
		"alg HS512":            sign(jwt.SigningMethodHS512, key('a'), "a", nil),
		"alg ES256":            sign(jwt.SigningMethodES256, elliptical, "a", nil),
		"other key":            sign(jwt.SigningMethodHS256, key('x'), "a", nil),
		"unknown kid":          sign(jwt.SigningMethodHS256, key('a'), "z", nil),
		"no kid":               sign(jwt.SigningMethodHS256, key('a'), "", nil),
		"kid of another type":  sign(jwt.SigningMethodHS256, key('a'), 1, nil),
		"other issuer":         hs(jwt.MapClaims{"iss": "someone"}),
		"no issuer":            hs(jwt.MapClaims{"iss": nil}),
		"other audience":       hs(jwt.MapClaims{"aud": "vendor"}),
		"no audience":          hs(jwt.MapClaims{"aud": nil}),
		"no expiry":            hs(jwt.MapClaims{"exp": nil}),
		"expiry of other type": hs(jwt.MapClaims{"exp": "tomorrow"}),
		"not yet valid":        hs(jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
		"no subject":           hs(jwt.MapClaims{"sub": nil}),
		"subject is no UUID":   hs(jwt.MapClaims{"sub": "someone"}),
		"expired, wrong aud":   hs(jwt.MapClaims{"iat": 1, "exp": 1, "aud": "fleet:production"}),
		"expired, wrong key":   sign(jwt.SigningMethodHS256, key('x'), "a", jwt.MapClaims{"iat": 1, "exp": 1}),
		"expired, wrong iss":   hs(jwt.MapClaims{"iat": 1, "exp": 1, "iss": "someone"}),
		"padded":               good + "=",
		"a fleet's":            string(issue(t, authority(t, ring("a"), Fleet, "production"), now)),
		"of the sandbox":       string(issue(t, authority(t, ring("a"), Vendor, "sandbox"), now)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := a.Verify([]byte(text), now); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNewAuthority_NeedsItsCurrentKey(t *testing.T) {
	if _, err := NewAuthority(config.Keyring{Current: "a"}, Vendor, "production"); err == nil {
		t.Error("an authority without a key")
	}
}

func TestCache_IsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	c := newCache()
	c.put("used", verified{expires: 7})
	for i := range 3 * cacheSize {
		c.put(fmt.Sprint(i), verified{})
		if _, ok := c.get([]byte("used")); !ok {
			t.Fatalf("a used token was dropped after %d others", i)
		}
	}
	if n := len(c.young) + len(c.old); n > 2*cacheSize {
		t.Errorf("%d tokens are kept", n)
	}
	if _, ok := c.get([]byte("0")); ok {
		t.Error("an unused token is kept for ever")
	}
}

func TestNewSecret_IsLongAndNew(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if a == b || len(a) != len(SecretPrefix)+43 || !strings.HasPrefix(a, SecretPrefix) {
		t.Errorf("%q, %q", a, b)
	}
}

func BenchmarkVerify_Cached(b *testing.B) {
	a := authority(b, ring("a"), Vendor, "production")
	issued := issue(b, a, now)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Verify(issued, now); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify_New(b *testing.B) {
	a := authority(b, ring("a"), Vendor, "production")
	issued := string(issue(b, a, now))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.parse(issued); err != nil {
			b.Fatal(err)
		}
	}
}
