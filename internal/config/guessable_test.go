package config

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func randomKey() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key)
	return key
}

func TestGuessable_RefusesWhatNoGeneratorMakes(t *testing.T) {
	for name, secret := range map[string]string{
		"zeros":             string(make([]byte, KeySize)),
		"one letter":        "aaaaaaaaaaaaaaaa",
		"two letters":       "abababababababab",
		"five digits":       "1112223334445551",
		"a word twice":      "correcthorsecorrecthorse",
		"half twice":        "0a9s8d7f6g5h4j3k0a9s8d7f6g5h4j3k",
		"digits":            "1234567890123456",
		"hexadecimal":       "0123456789abcdef0123456789abcdef",
		"letters":           "abcdefghijklmnopqrstuvwxyz012345",
		"bytes in order":    "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f",
		"backwards":         "zyxwvutsrqponmlkjihg",
		"change it":         "change-me-before-production-2026",
		"upper case":        "CHANGE_ME_BEFORE_PRODUCTION",
		"a password":        "myPassword!2026-very-long",
		"an admin key":      "an-admin-key-of-some-length",
		"a keyboard's row":  "1q2w3e4r5t6y7u8i",
		"Turkish words":     "bunu-degistir-2026",
		"the sandbox's":     "sandbox-9f8e7d6c5b4a",
		"the example's":     "example.9f8e7d6c5b4a",
		"the service's own": "vendor-api-9f8e7d6c5b4a",
	} {
		if err := Guessable([]byte(secret)); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows it: %v", name, err)
		}
	}
	for range 1000 {
		key := randomKey()
		for _, text := range []string{string(key), hex.EncodeToString(key), base64.StdEncoding.EncodeToString(key), "adm_" + base64.RawURLEncoding.EncodeToString(key)} {
			if err := Guessable([]byte(text)); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

func TestKeyMistakes_NameTheKeys(t *testing.T) {
	ring := func(name string, keys map[string][]byte) NamedKeyring {
		return NamedKeyring{Name: name, Keyring: Keyring{Keys: keys}}
	}
	one, two, three := randomKey(), randomKey(), randomKey()
	right := []NamedKeyring{ring("A", map[string][]byte{"k1": one, "k2": two}), ring("B", map[string][]byte{"k1": three})}
	if err := KeyMistakes(right...); err != nil {
		t.Errorf("three keys: %v", err)
	}
	for name, c := range map[string]struct {
		rings []NamedKeyring
		want  string
	}{
		"weak":         {[]NamedKeyring{ring("A", map[string][]byte{"k1": one, "k2": bytes.Repeat([]byte{7}, KeySize)})}, `A: key "k2" can be guessed`},
		"in one ring":  {[]NamedKeyring{ring("A", map[string][]byte{"k1": one, "k2": one})}, `A: key "k2" is the same as that of A: key "k1"`},
		"in two rings": {append(right, ring("C", map[string][]byte{"c": two})), `C: key "c" is the same as that of A: key "k2"`},
	} {
		if err := KeyMistakes(c.rings...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}

	bearer, other := hex.EncodeToString(randomKey()), hex.EncodeToString(randomKey())
	for value, want := range map[string]string{
		bearer:                                 "",
		bearer + "," + other:                   "",
		bearer + ",":                           "",
		"aaaaaaaaaaaaaaaa":                     "K can be guessed",
		bearer + "," + bearer:                  "K: number 2 is the same as one before it",
		bearer + ",1234567890123456":           "K: number 2 can be guessed",
		base64.StdEncoding.EncodeToString(two): "K is the same as a key of A",
	} {
		err := BearerMistakes("K", value, right...)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

func TestPasswordMistake_FindsThePasswordOfAURL(t *testing.T) {
	for text, mistake := range map[string]bool{
		"redis://127.0.0.1:6379":                                      false,
		"redis://gateway@redis:6379":                                  false,
		"redis://gateway:9f8e7d6c5b4a@redis:6379?addr=redis-2:6379":   false,
		"redis://gateway:gateway@redis:6379":                          true,
		"redis://gateway:password1@redis:6379":                        true,
		"http://delivery:delivery@clickhouse:8123":                    true,
		"clickhouse://h:9000/delivery?username=u&password=1111111111": true,
		"clickhouse://h:9000/delivery?username=u&password=9f8e7d6c5b": false,
		"://": false,
	} {
		if err := PasswordMistake("x.url", text); (err != nil) != mistake || err != nil && !strings.HasPrefix(err.Error(), "x.url: the password ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
