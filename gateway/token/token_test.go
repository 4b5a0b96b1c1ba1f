package token

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/config"
	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

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
	got, at, err := authority(t, ring("a"), Vendor, "production").Verify(issued, now, now)
	if err != nil || got != subject || at != now.Unix() {
		t.Errorf("got %x at %d, %v", got, at, err)
	}
}

//rule:token/expiresIn authentication/2 limits/other-constants/token-lifetime
func TestAuthority_ExpiresAfterAnHour(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	issued := issue(t, a, now)
	for _, fresh := range []bool{false, true} { // cached, then parsed again
		if fresh {
			a = authority(t, ring("a"), Vendor, "production")
		}

		if _, _, err := a.Verify(issued, now.Add(Lifetime-time.Second), now.Add(Lifetime-time.Second)); err != nil {
			t.Errorf("one second before: %v", err)
		}
		if _, _, err := a.Verify(issued, now.Add(Lifetime), now.Add(Lifetime)); !errors.Is(err, ErrExpired) {
			t.Errorf("after: %v", err)
		}
	}

	// A token that had expired before this process ever saw it, by the real
	// clock too.
	old := issue(t, a, time.Now().Add(-2*time.Hour))
	if _, _, err := authority(t, ring("a"), Vendor, "production").Verify(old, time.Now(), time.Now()); !errors.Is(err, ErrExpired) {
		t.Errorf("old token: %v", err)
	}
}

func TestAuthority_KeysRotate(t *testing.T) {
	before := authority(t, ring("a"), Vendor, "production")
	during := authority(t, ring("b", "a"), Vendor, "production")
	after := authority(t, ring("b"), Vendor, "production")
	oldToken, newToken := issue(t, before, now), issue(t, during, now)
	if _, _, err := during.Verify(oldToken, now, now); err != nil {
		t.Errorf("old token during rotation: %v", err)
	}
	if _, _, err := after.Verify(newToken, now, now); err != nil {
		t.Errorf("new token after rotation: %v", err)
	}
	if _, _, err := after.Verify(oldToken, now, now); !errors.Is(err, ErrInvalid) {
		t.Errorf("old token after its key was retired: %v", err)
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
		if _, _, err := a.Verify(issued, now, now); err != nil {
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
