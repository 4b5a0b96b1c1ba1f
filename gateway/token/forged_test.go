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

// ours signs with the key that a good token has.
func ours(header, claims string) string { return forge(header, claims, key('a'), sha256.New) }

// stamp is now plus d in Unix seconds, as it stands in claims.
func stamp(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }

// exp replaces the expiry of claims by any JSON text.
func exp(value string) string { return said(`"exp":`+stamp(Lifetime), `"exp":`+value) }

// What is signed with our own key and is still no token of ours: the key alone
// does not make one, should something else come to sign with it.
func TestVerify_TimesAndClaims(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	both := func(issued, expires string) string {
		return said(`"exp":`+stamp(Lifetime), `"exp":`+expires, `"iat":`+stamp(0), `"iat":`+issued)
	}
	for name, c := range map[string]struct {
		claims string
		want   error
	}{
		"as issued":                          {said(), nil},
		"a second before the end":            {both(stamp(time.Second-Lifetime), stamp(time.Second)), nil},
		"expired by a second":                {both(stamp(-time.Second-Lifetime), stamp(-time.Second)), ErrExpired},
		"expired this second":                {both(stamp(-Lifetime), stamp(0)), ErrExpired},
		"a fraction of a second":             {exp(stamp(Lifetime-time.Second) + ".25"), ErrInvalid},
		"no expiry":                          {said(`"exp":`+stamp(Lifetime)+`,`, ""), ErrInvalid},
		"expiry null":                        {exp("null"), ErrInvalid},
		"expiry text":                        {exp(`"` + stamp(Lifetime) + `"`), ErrInvalid},
		"expiry true":                        {exp("true"), ErrInvalid},
		"expiry a list":                      {exp("[" + stamp(Lifetime) + "]"), ErrInvalid},
		"expiry negative":                    {exp("-1"), ErrInvalid},
		"expiry zero":                        {exp("0"), ErrInvalid},
		"expiry 1e300":                       {exp("1e300"), ErrInvalid},
		"expiry -1e300":                      {exp("-1e300"), ErrInvalid},
		"expiry above 64 bits":               {exp("9223372036854775808"), ErrInvalid},
		"expiry at the end of 64 bits":       {exp("9223372036854775807"), ErrInvalid},
		"expiry of the year 9999":            {exp("253402300799"), ErrInvalid},
		"a second longer than issued":        {exp(stamp(Lifetime + time.Second)), ErrInvalid},
		"no time of issue":                   {said(`,"iat":`+stamp(0), ""), ErrInvalid},
		"issued before all time":             {both("-9223372036854775808", stamp(Lifetime)), ErrInvalid},
		"not yet valid":                      {said(`}`, `,"nbf":`+fmt.Sprint(time.Now().Add(time.Hour).Unix())+`}`), ErrInvalid},
		"a fleet's audience":                 {said("vendor:", "fleet:"), ErrInvalid},
		"the sandbox's audience":             {said("production", "sandbox"), ErrInvalid},
		"an audience in capitals":            {said("vendor:production", "VENDOR:PRODUCTION"), ErrInvalid},
		"an audience that begins alike":      {said("vendor:production", "vendor:production2"), ErrInvalid},
		"audience null":                      {said(`["vendor:production"]`, "null"), ErrInvalid},
		"audience a number":                  {said(`["vendor:production"]`, "1"), ErrInvalid},
		"another issuer":                     {said(`"vendorapi"`, `"vendorapi2"`), ErrInvalid},
		"issuer null":                        {said(`"vendorapi"`, "null"), ErrInvalid},
		"issuer a list":                      {said(`"vendorapi"`, `["vendorapi"]`), ErrInvalid},
		"subject in braces":                  {said(`"5d9a`, `"{5d9a`, `4e5f"`, `4e5f}"`), ErrInvalid},
		"subject as a URN":                   {said(`"5d9a`, `"urn:uuid:5d9a`), ErrInvalid},
		"subject empty":                      {said(uuid.UUID(subject).String(), ""), ErrInvalid},
		"expiry twice, the last in the past": {said(`}`, `,"exp":`+stamp(-time.Second)+`}`), ErrExpired},
		"audience twice, the last wrong":     {said(`}`, `,"aud":["fleet:production"]}`), ErrInvalid},
		"no claims":                          {"{}", ErrInvalid},
		"claims null":                        {"null", ErrInvalid},
		"claims a list":                      {"[" + said() + "]", ErrInvalid},
		"claims empty":                       {"", ErrInvalid},
		"claims twice":                       {said() + said(), ErrInvalid},
		"claims deeply nested":               {strings.Repeat(`{"a":`, 20_000), ErrInvalid},
		"no issuer":                          {said(`"iss":"vendorapi",`, ""), ErrInvalid},
		"no audience":                        {said(`,"aud":["vendor:production"]`, ""), ErrInvalid},
		"no subject":                         {said(`,"sub":"`+uuid.UUID(subject).String()+`"`, ""), ErrInvalid},
		"subject that is no UUID":            {said(uuid.UUID(subject).String(), "someone"), ErrInvalid},
		"expired and the wrong issuer":       {said(`"vendorapi"`, `"someone"`, stamp(Lifetime), "2", stamp(0), "1"), ErrInvalid},
		"expired and the wrong audience":     {said("vendor:", "fleet:", stamp(Lifetime), "2", stamp(0), "1"), ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(ours(plainHeader, c.claims))
			for range 2 { // the second time perhaps from the cache
				if _, err := a.Verify(text, now); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			}
		})
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
	tokens := map[string]string{
		"RS256 by a key pair":              signedRSA(header(`"RS256"`)),
		"HS256 by a public key":            forge(plainHeader, said(), public, sha256.New),
		"HS256 that an RSA key signed":     signedRSA(plainHeader),
		"HS512 by our key":                 forge(header(`"HS512"`), said(), key('a'), sha512.New),
		"HS384 by our key":                 forge(header(`"HS384"`), said(), key('a'), sha512.New384),
		"HS256 that is SHA-512":            forge(plainHeader, said(), key('a'), sha512.New),
		"HS512 that is SHA-256":            ours(header(`"HS512"`), said()),
		"HS256 by an empty key":            forge(plainHeader, said(), nil, sha256.New),
		"HS256 by 32 zero bytes":           forge(plainHeader, said(), make([]byte, 32), sha256.New),
		"twice, the last none":             ours(strings.Replace(plainHeader, `}`, `,"alg":"none"}`, 1), said()),
		"a key that the header brings":     forge(strings.Replace(plainHeader, `}`, jwk, 1), said(), key('x'), sha256.New),
		"a key that the header links to":   forge(strings.Replace(plainHeader, `}`, `,"jku":"https://evil.example/k"}`, 1), said(), key('x'), sha256.New),
		"a key that the header links to 2": forge(strings.Replace(plainHeader, `}`, `,"x5u":"https://evil.example/k"}`, 1), said(), key('x'), sha256.New),
	}
	for _, alg := range []string{`"none"`, `"None"`, `"NONE"`, `"nOnE"`, `""`, `"hs256"`, `"HS256 "`, `null`, `256`, `["HS256"]`, `{"alg":"HS256"}`} {
		input := encode(header(alg)) + "." + encode(said())
		tokens["alg "+alg+" unsigned"] = input + "."
		tokens["alg "+alg+" signed"] = ours(header(alg), said())
	}
	tokens["no alg"] = ours(`{"kid":"a","typ":"JWT"}`, said())
	refused(t, a, tokens)
}

func TestVerify_KeyIDs(t *testing.T) {
	a := authority(t, ring("a", "b"), Vendor, "production")
	header := func(kid string) string { return strings.Replace(plainHeader, `"kid":"a"`, kid, 1) }
	tokens := map[string]string{
		"none":                           ours(`{"alg":"HS256","typ":"JWT"}`, said()),
		"another key":                    forge(plainHeader, said(), key('x'), sha256.New),
		"another key, expired":           forge(plainHeader, said(stamp(Lifetime), "2", stamp(0), "1"), key('x'), sha256.New),
		"unknown":                        forge(header(`"kid":"z"`), said(), key('z'), sha256.New),
		"the other key's":                ours(header(`"kid":"b"`), said()),
		"twice, the last the other's":    ours(header(`"kid":"a","kid":"b"`), said()),
		"a file that holds nothing":      forge(header(`"kid":"../../../../dev/null"`), said(), nil, sha256.New),
		"a file's content that is known": forge(header(`"kid":"/proc/sys/kernel/randomize_va_space"`), said(), []byte("2\n"), sha256.New),
		"a statement":                    forge(header(`"kid":"a' UNION SELECT 'x"`), said(), []byte("x"), sha256.New),
		"empty, empty key":               forge(header(`"kid":""`), said(), nil, sha256.New),
		"very long":                      ours(header(`"kid":"`+strings.Repeat("a", 9000)+`"`), said()),
	}
	for _, kid := range []string{`"A"`, `" a"`, `"a "`, `"a\u0000"`, `null`, `1`, `true`, `["a"]`, `{"a":1}`} {
		tokens[kid] = ours(header(`"kid":`+kid), said())
	}
	refused(t, a, tokens)
}

func TestVerify_Forms(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	good := ours(plainHeader, said())
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
	refused(t, a, map[string]string{
		"empty":                     "",
		"no token":                  "abc",
		"two parts":                 h + "." + c,
		"no signature":              h + "." + c + ".",
		"another signature":         h + "." + c + "." + encode(string(key('x'))),
		"other claims":              h + "." + encode(said("5d9a", "5d9b")) + "." + s,
		"dots only":                 "..",
		"four parts":                good + "." + s,
		"an empty fourth part":      good + ".",
		"an empty part in front":    "." + good,
		"no header":                 "." + c + "." + s,
		"no claims":                 h + ".." + s,
		"signature twice":           good + s,
		"parts exchanged":           c + "." + h + "." + s,
		"blank in front":            " " + good,
		"blank behind":              good + " ",
		"blank within":              h + ". " + c + "." + s,
		"line end behind":           good + "\n",
		"line end within":           h[:8] + "\n" + h[8:] + "." + c + "." + s,
		"line end in the signature": h + "." + c + "." + s[:8] + "\r\n" + s[8:],
		"NUL behind":                good + "\x00",
		"quoted":                    `"` + good + `"`,
		"header padded":             signed(std([]byte(plainHeader)), c),
		"claims padded":             signed(h, base64.URLEncoding.EncodeToString([]byte(said()+" "))),
		"signature padded":          h + "." + c + "." + s + "=",
		"signature in plain base64": h + "." + c + "." + std(signature),
		"signature in hexadecimal":  h + "." + c + "." + fmt.Sprintf("%x", signature),
		"claims not encoded":        h + "." + said() + "." + s,
		"a byte order mark":         signed(encode("\ufeff"+plainHeader), c),
		"header in UTF-16":          signed(encode("{\x00}\x00"), c),
		"in capitals":               strings.ToUpper(good),
		"signature cut":             h + "." + c + "." + s[:len(s)-2],
		"a JSON serialisation":      `{"protected":"` + h + `","payload":"` + c + `","signature":"` + s + `"}`,
		"very long":                 good + strings.Repeat("A", 1<<20),
		"very many dots":            strings.Repeat(".", 1<<20),
	})
}

func refused(t *testing.T, a *Authority, tokens map[string]string) {
	t.Helper()
	for name, text := range tokens {
		t.Run(name, func(t *testing.T) {
			if _, err := a.Verify([]byte(text), now); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Every bit of a token counts, those that base64 has to spare included, before
// and after the cache knows the token.
func TestVerify_EveryBitCounts(t *testing.T) {
	fresh, used := authority(t, ring("a"), Vendor, "production"), authority(t, ring("a"), Vendor, "production")
	good := issue(t, used, now)
	if _, err := used.Verify(good, now); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for bit := range 8 {
			changed := bytes.Clone(good)
			changed[i] ^= 1 << bit
			for _, a := range []*Authority{fresh, used} {
				if _, err := a.Verify(changed, now); !errors.Is(err, ErrInvalid) {
					t.Fatalf("byte %d, bit %d: %v", i, bit, err)
				}
			}
		}
	}
	for _, a := range []*Authority{fresh, used} {
		if n := len(a.verified.young) + len(a.verified.old); n > 1 {
			t.Errorf("%d refused tokens are remembered", n-1)
		}
	}
}

// What was not issued is refused, whatever was done to what was: cut, put
// together anew, repeated, of several tokens.
func TestVerify_OnlyWhatWasIssued(t *testing.T) {
	a := authority(t, ring("a"), Vendor, "production")
	other := [16]byte(uuid.New())
	second, err := a.Issue(other, now.Add(time.Minute))
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
		got, err := a.Verify([]byte(text), now)
		if want, ok := issued[text]; ok {
			if err != nil || got != want {
				t.Fatalf("an issued token: %x, %v", got, err)
			}
		} else if !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %x, %v", text, got, err)
		}
	})
}
