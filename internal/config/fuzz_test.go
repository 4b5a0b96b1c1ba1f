package config

import (
	"encoding/base64"
	"strings"
	"testing"
)

// FuzzParseKeyring: a ring that is taken has its current key, and every key has
// its full length.
func FuzzParseKeyring(f *testing.F) {
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", KeySize)))
	for _, seed := range []string{"a:" + key, "a:" + key + ", b:" + key, "a:" + key + ",a:" + key, "", ":", "a:" + key[1:], " a :" + key, "a:" + key + ","} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		ring, err := parseKeyring(text)
		if err != nil {
			if strings.Contains(text, key) && strings.Contains(err.Error(), key) {
				t.Error("the error shows a key")
			}
			return
		}

		if len(ring.Keys) != strings.Count(text, ",")+1 || len(ring.Keys[ring.Current]) != KeySize {
			t.Errorf("%q gave %d keys, current %q", text, len(ring.Keys), ring.Current)
		}

		for kid, key := range ring.Keys {
			if len(key) != KeySize || !keyID.MatchString(kid) || !strings.Contains(text, kid+":") {
				t.Errorf("%q has %d bytes", kid, len(key))
			}
		}
	})
}
