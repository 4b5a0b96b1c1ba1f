package token

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

const (
	plainHeader = `{"alg":"HS256","kid":"a","typ":"JWT"}`
	plainClaims = `{"iss":"vendorapi","sub":"5d9a6b0e-8f0e-4c3c-9b1a-3f0a1c2d4e5f","aud":["vendor:production"],"exp":%d,"iat":%d}`
)

// said are the claims of a token that is good at now; each change replaces one
// text with another.
func said(changes ...string) string {
	text := fmt.Sprintf(plainClaims, now.Add(Lifetime).Unix(), now.Unix())
	return strings.NewReplacer(changes...).Replace(text)
}

// forge signs whatever it is given, as no library would.
func forge(header, claims string, key []byte, h func() hash.Hash) string {
	input := encode(header) + "." + encode(claims)
	mac := hmac.New(h, key)
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// ownSigned signs with the key that a good token has.
func ownSigned(header, claims string) string { return forge(header, claims, key('a'), sha256.New) }

// stamp is now plus d in Unix seconds, as it stands in claims.
func stamp(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }

// exp replaces the expiry of claims by any JSON text.
func exp(value string) string { return said(`"exp":`+stamp(Lifetime), `"exp":`+value) }

// What is signed with our own key and is still no issued token: the key alone
// does not make one, should something else come to sign with it.
func TestVerify_TimesAndClaims(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	both := func(issued, expires string) string {
		return said(`"exp":`+stamp(Lifetime), `"exp":`+expires, `"iat":`+stamp(0), `"iat":`+issued)
	}
	for wanted, all := range map[error][]string{
		nil: {
			said(), both(stamp(time.Second-Lifetime), stamp(time.Second)),
		},
		ErrExpired: {
			both(stamp(-time.Second-Lifetime), stamp(-time.Second)), both(stamp(-Lifetime), stamp(0)), said(`}`, `,"exp":`+stamp(-time.Second)+`}`),
		},
		ErrInvalid: {
			exp(stamp(Lifetime-time.Second) + ".25"), said(`"exp":`+stamp(Lifetime)+`,`, ""), exp("null"), exp(`"` + stamp(Lifetime) + `"`), exp("true"),
			exp("[" + stamp(Lifetime) + "]"), exp("-1"), exp("0"), exp("1e300"), exp("-1e300"), exp("9223372036854775808"), exp("9223372036854775807"), exp("253402300799"),
			exp(stamp(Lifetime + time.Second)), said(`,"iat":`+stamp(0), ""), both("-9223372036854775808", stamp(Lifetime)),
			said(`}`, `,"nbf":`+fmt.Sprint(time.Now().Add(time.Hour).Unix())+`}`), said("vendor:", "fleet:"), said("production", "sandbox"),
			said("vendor:production", "VENDOR:PRODUCTION"), said("vendor:production", "vendor:production2"), said(`["vendor:production"]`, "null"),
			said(`["vendor:production"]`, "1"), said(`"vendorapi"`, `"vendorapi2"`), said(`"vendorapi"`, "null"), said(`"vendorapi"`, `["vendorapi"]`),
			said(`"5d9a`, `"{5d9a`, `4e5f"`, `4e5f}"`), said(`"5d9a`, `"urn:uuid:5d9a`), said(uuid.UUID(subject).String(), ""), said(`}`, `,"aud":["fleet:production"]}`), "{}",
			"null", "[" + said() + "]", "", said() + said(), strings.Repeat(`{"a":`, 20_000), said(`"iss":"vendorapi",`, ""), said(`,"aud":["vendor:production"]`, ""),
			said(`,"sub":"`+uuid.UUID(subject).String()+`"`, ""), said(uuid.UUID(subject).String(), "someone"),
			said(`"vendorapi"`, `"someone"`, stamp(Lifetime), "2", stamp(0), "1"), said("vendor:", "fleet:", stamp(Lifetime), "2", stamp(0), "1"),
		},
	} {
		for _, claims := range all {
			text := []byte(ownSigned(plainHeader, claims))
			for range 2 { // the second time perhaps from the cache
				if _, _, err := a.Verify(text, now, now); !errors.Is(err, wanted) {
					t.Errorf("%.200s: got %v, want %v", claims, err, wanted)
				}
			}
		}
	}
}

func TestVerify_Algorithms(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	header := func(alg string) string { return strings.Replace(plainHeader, `"HS256"`, alg, 1) }
	signedRSA := func(header string) string {
		input := encode(header) + "." + encode(said())
		digest := sha256.Sum256([]byte(input))
		signature, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, digest[:])
		if err != nil {
			t.Fatal(err)
		}
		return input + "." + base64.RawURLEncoding.EncodeToString(signature)
	}

	jwk := `,"jwk":{"kty":"oct","k":"` + base64.RawURLEncoding.EncodeToString(key('x')) + `"}}`
	tokens := []string{
		signedRSA(header(`"RS256"`)), forge(plainHeader, said(), public, sha256.New), signedRSA(plainHeader), forge(header(`"HS512"`), said(), key('a'), sha512.New),
		forge(header(`"HS384"`), said(), key('a'), sha512.New384), forge(plainHeader, said(), key('a'), sha512.New), ownSigned(header(`"HS512"`), said()),
		forge(plainHeader, said(), nil, sha256.New), forge(plainHeader, said(), make([]byte, 32), sha256.New),
		ownSigned(strings.Replace(plainHeader, `}`, `,"alg":"none"}`, 1), said()), forge(strings.Replace(plainHeader, `}`, jwk, 1), said(), key('x'), sha256.New),
		forge(strings.Replace(plainHeader, `}`, `,"jku":"https://evil.example/k"}`, 1), said(), key('x'), sha256.New),
		forge(strings.Replace(plainHeader, `}`, `,"x5u":"https://evil.example/k"}`, 1), said(), key('x'), sha256.New),
	}

	for _, alg := range []string{`"none"`, `"None"`, `"NONE"`, `"nOnE"`, `""`, `"hs256"`, `"HS256 "`, `null`, `256`, `["HS256"]`, `{"alg":"HS256"}`} {
		input := encode(header(alg)) + "." + encode(said())
		tokens = append(tokens, input+".")
		tokens = append(tokens, ownSigned(header(alg), said()))
	}

	tokens = append(tokens, ownSigned(`{"kid":"a","typ":"JWT"}`, said()))
	refused(t, a, tokens)
}

func TestVerify_KeyIDs(t *testing.T) {
	a := authority(t, ring("a", "b"), Vendor, "production")
	header := func(kid string) string { return strings.Replace(plainHeader, `"kid":"a"`, kid, 1) }
	tokens := []string{
		ownSigned(`{"alg":"HS256","typ":"JWT"}`, said()), forge(plainHeader, said(), key('x'), sha256.New),
		forge(plainHeader, said(stamp(Lifetime), "2", stamp(0), "1"), key('x'), sha256.New), forge(header(`"kid":"z"`), said(), key('z'), sha256.New),
		ownSigned(header(`"kid":"b"`), said()), ownSigned(header(`"kid":"a","kid":"b"`), said()), forge(header(`"kid":"../../../../dev/null"`), said(), nil, sha256.New),
		forge(header(`"kid":"/proc/sys/kernel/randomize_va_space"`), said(), []byte("2\n"), sha256.New),
		forge(header(`"kid":"a' UNION SELECT 'x"`), said(), []byte("x"), sha256.New), forge(header(`"kid":""`), said(), nil, sha256.New),
		ownSigned(header(`"kid":"`+strings.Repeat("a", 9000)+`"`), said()),
	}

	for _, kid := range []string{`"A"`, `" a"`, `"a "`, `"a\u0000"`, `null`, `1`, `true`, `["a"]`, `{"a":1}`} {
		tokens = append(tokens, ownSigned(header(`"kid":`+kid), said()))
	}

	refused(t, a, tokens)
}

func TestVerify_Forms(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	good := ownSigned(plainHeader, said())
	if _, err := a.parse(good); err != nil {
		t.Fatalf("the untouched token of this test is refused: %v", err)
	}

	parts := strings.Split(good, ".")
	h, c, s := parts[0], parts[1], parts[2]
	signature, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}

	signed := func(h, c string) string { // in another encoding, with the signature of just that
		mac := hmac.New(sha256.New, key('a'))
		mac.Write([]byte(h + "." + c))
		return h + "." + c + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}

	std := base64.StdEncoding.EncodeToString
	refused(t, a, []string{
		"", "abc", h + "." + c, h + "." + c + ".", h + "." + c + "." + encode(string(key('x'))), h + "." + encode(said("5d9a", "5d9b")) + "." + s, "..", good + "." + s,
		good + ".", "." + good, "." + c + "." + s, h + ".." + s, good + s, c + "." + h + "." + s, " " + good, good + " ", h + ". " + c + "." + s, good + "\n",
		h[:8] + "\n" + h[8:] + "." + c + "." + s, h + "." + c + "." + s[:8] + "\r\n" + s[8:], good + "\x00", `"` + good + `"`, signed(std([]byte(plainHeader)), c),
		signed(h, base64.URLEncoding.EncodeToString([]byte(said()+" "))), h + "." + c + "." + s + "=", h + "." + c + "." + std(signature),
		h + "." + c + "." + fmt.Sprintf("%x", signature), h + "." + said() + "." + s, signed(encode("\ufeff"+plainHeader), c), signed(encode("{\x00}\x00"), c),
		strings.ToUpper(good), h + "." + c + "." + s[:len(s)-2], `{"protected":"` + h + `","payload":"` + c + `","signature":"` + s + `"}`,
		good + strings.Repeat("A", 1<<20), strings.Repeat(".", 1<<20),
	})
}

func refused(t *testing.T, a *Authority, tokens []string) {
	t.Helper()
	for _, text := range tokens {
		if _, _, err := a.Verify([]byte(text), now, now); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.200s: got %v", text, err)
		}
	}
}

// Every bit of a token counts, those that base64 has to spare included, before
// and after the cache knows the token.
func TestVerify_EveryBitCounts(t *testing.T) {
	fresh, used := authority(t, ring("a"), Vendor, "production"), authority(t, ring("a"), Vendor, "production")
	good := issue(t, used, now)
	if _, _, err := used.Verify(good, now, now); err != nil {
		t.Fatal(err)
	}

	refuse := func(i int, letter byte) {
		changed := bytes.Clone(good)
		changed[i] = letter
		for _, a := range []*Authority{fresh, used} {
			if _, _, err := a.Verify(changed, now, now); !errors.Is(err, ErrInvalid) {
				t.Fatalf("byte %d as %q: %v", i, letter, err)
			}
		}
	}

	for i := range good {
		for bit := range 8 {
			refuse(i, good[i]^1<<bit)
		}
	}

	// Two bits of the signature's last letter decode to nothing.
	last := len(good) - 1
	for _, letter := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		if letter != good[last] {
			refuse(last, letter)
		}
	}

	for _, a := range []*Authority{fresh, used} {
		if n := len(a.verified.young) + len(a.verified.old); n > 1 {
			t.Errorf("%d refused tokens are remembered", n-1)
		}
	}
}

// What was not issued is refused, whatever was done to what was: cut, put
// together again, repeated, of several tokens.
func TestVerify_OnlyWhatWasIssued(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	other := [16]byte(uuid.New())
	second, err := a.Issue(other, now)
	if err != nil {
		t.Fatal(err)
	}

	material := []string{string(issue(t, a, now)), second,
		string(issue(t, authority(t, ring("a"), Fleet, "production"), now)), string(issue(t, authority(t, ring("x"), Vendor, "production"), now))}
	issued := map[string][16]byte{material[0]: subject, material[1]: other}
	rapid.Check(t, func(t *rapid.T) {
		var text string
		for range rapid.IntRange(1, 5).Draw(t, "pieces") {
			from := rapid.SampledFrom(material).Draw(t, "token")
			if rapid.Bool().Draw(t, "by parts") {
				from = rapid.SampledFrom(strings.SplitAfter(from, ".")).Draw(t, "part")
			}
			start := rapid.IntRange(0, 2).Draw(t, "start")
			end := rapid.IntRange(len(from)-2, len(from)).Draw(t, "end")
			text += from[start:end]
		}

		got, _, err := a.Verify([]byte(text), now, now)
		if want, ok := issued[text]; ok {
			if err != nil || got != want {
				t.Fatalf("an issued token: %x, %v", got, err)
			}
		} else if !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %x, %v", text, got, err)
		}
	})
}
