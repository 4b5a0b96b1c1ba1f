package token

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// isIssued reports whether a token is header.claims.HMAC, made with a key that
// the header names: all that a forger lacks.
func isIssued(text string, keys map[string][]byte) bool {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return false
	}

	var header struct {
		Alg string `json:"alg"`
		Kid string `json:"kid"`
	}

	raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil || json.Unmarshal(raw, &header) != nil || header.Alg != "HS256" {
		return false
	}

	mac := hmac.New(sha256.New, keys[header.Kid])
	mac.Write([]byte(parts[0] + "." + parts[1]))
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])

	return err == nil && keys[header.Kid] != nil && hmac.Equal(signature, mac.Sum(nil))
}

// FuzzVerify_Forged: whatever is sent as a token, only one that was signed with a
// own key is taken, or called expired.
func FuzzVerify_Forged(f *testing.F) {
	keys := ring("a", "b")
	a := authority(f, keys, Vendor, "production")
	good := string(issue(f, a, now))
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"a"}`))
	for _, seed := range []string{good, none + "." + parts[1] + ".", none + "." + parts[1] + "." + parts[2], parts[0] + "." + parts[1] + ".",
		good + "=", good + "\n", good[:len(good)-1] + "A", "..", "", parts[0] + ".e30." + parts[2], strings.ToUpper(good),
		string(issue(f, authority(f, ring("z"), Vendor, "production"), now)), string(issue(f, authority(f, keys, Fleet, "production"), now))} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, at := range []time.Time{now, now.Add(2 * Lifetime)} {
			who, _, err := a.Verify(raw, at, at)
			switch {
			case errors.Is(err, ErrInvalid):
			case !isIssued(string(raw), keys.Keys):
				t.Fatalf("%q was taken for a token of %x, %v", raw, who, err)
			case err == nil && at.After(now.Add(Lifetime)) && who == subject:
				t.Fatalf("%q is still good two hours later", raw)
			}
		}
	})
}

// FuzzVerify_Claims signs whatever a forger would like to claim with the right
// key: it is taken only when every claim is as Issue makes it.
func FuzzVerify_Claims(f *testing.F) {
	keys := ring("a")
	a := authority(f, keys, Vendor, "production")
	const header = `{"alg":"HS256","typ":"JWT","kid":"a"}`
	for _, seed := range [][2]string{
		{header, `{"iss":"vendorapi","sub":"5d9a6b0e-8f0e-4c3c-9b1a-3f0a1c2d4e5f","aud":["vendor:production"],"exp":4102444800,"iat":1}`},
		{header, `{"iss":"vendorapi","sub":"5d9a6b0e-8f0e-4c3c-9b1a-3f0a1c2d4e5f","aud":"vendor:sandbox","exp":4102444800}`},
		{header, `{"iss":"vendorapi","sub":"x","aud":"vendor:production","exp":1e400}`},
		{header, `{"iss":"vendorapi","sub":"5d9a6b0e-8f0e-4c3c-9b1a-3f0a1c2d4e5f","aud":"vendor:production"}`},
		{header, `{"iss":"vendorapi","sub":"5d9a6b0e-8f0e-4c3c-9b1a-3f0a1c2d4e5f","aud":"vendor:production","exp":4102444800,"nbf":4102444800}`},
		{`{"alg":"none","kid":"a"}`, `{}`}, {`{"alg":"HS512","kid":"a"}`, `{"exp":-1}`}, {`{"alg":"HS256","kid":["a"]}`, `null`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}

	f.Fuzz(func(t *testing.T, header, claims []byte) {
		text := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(claims)
		mac := hmac.New(sha256.New, keys.Keys["a"])
		mac.Write([]byte(text))
		who, _, err := a.Verify([]byte(text+"."+base64.RawURLEncoding.EncodeToString(mac.Sum(nil))), now, now)
		if errors.Is(err, ErrInvalid) {
			return
		}

		var said struct {
			Iss, Sub string
			Exp      json.Number
		}

		if json.Unmarshal(claims, &said) != nil || said.Iss != issuer || !bytes.Contains(header, []byte("HS256")) || said.Exp == "" {
			t.Fatalf("%s %s was taken: %v", header, claims, err)
		}

		if err == nil {
			if id, parsed := uuid.Parse(said.Sub); parsed != nil || id != who || len(said.Sub) != 36 {
				t.Fatalf("%s was taken for %x", claims, who)
			}
			if seconds, exact := said.Exp.Float64(); exact == nil && seconds < float64(now.Unix()) {
				t.Fatalf("%s has expired", claims)
			}
		}
	})
}
