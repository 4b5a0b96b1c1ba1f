package config

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	mathrand "math/rand/v2"
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
		"five characters":   "x7q#!7xq!#x7!q#q",
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

		"doubled digits":        "00112233445566778899aabbccddeeff",
		"doubled letters":       "aabbccddeeffgghh",
		"every other, doubled":  "aacceeggiikkmmoo",
		"tripled letters":       "aaabbbcccdddeeefffggg",
		"a doubled row":         "qqwweerrttyyuuii",
		"columns":               "1qaz2wsx3edc4rfv",
		"a row and digits":      "q1w2e3r4t5y6u7i8",
		"words and slashes":     "change/me/now/please",
		"columns, upwards":      "zaq1xsw2cde3vfr4",
		"rows of QWERTY":        "asdfghjklzxcvbnm",
		"rows of QWERTZ":        "qwertzuiopasdfgh",
		"rows backwards":        "poiuytrewqlkjhgf",
		"rows of Turkish Q":     "asdfghjklşizxcvbnmöç",
		"two kinds of rows":     "abcdefgh87654321",
		"digits for letters":    "P@ssw0rd12345678",
		"one as l":              "G1zl1-Anahtar-01",
		"change it, again":      "changeit-changeit",
		"please":                "please-change-16",
		"a note":                "TODO:set this key",
		"Turkish, plain":        "sifre12345678901",
		"Turkish, as written":   "değiştirin123456",
		"Turkish, half written": "degiştir-degiştir",
		"Turkish, upper case":   "ŞİFRE_GİZLİ_ŞİFRE",
		"Turkish, composed":     "s\u0327ifre-gizli-2026",
		"German":                "Passwort-Geheim-01",
		"a sentence":            "iamtheadmin12345",
		"a token's name":        "test-token-key-01",
	} {
		if err := Guessable([]byte(secret)); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows it: %v", name, err)
		}
	}
}

// About one round in a million draws a text that is refused, because it happens to spell a placeholder: a run
// with new keys each time would fail once in a hundred times. So the keys are always the same.
func TestGuessable_AcceptsRandomKeys(t *testing.T) {
	const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	random := mathrand.NewChaCha8([32]byte{1})
	letterOf := mathrand.New(random)

	for range 10_000 {
		long, letters := make([]byte, KeySize), make([]byte, 32)
		_, _ = random.Read(long)
		short := long[:16]
		for i := range letters {
			letters[i] = alphanumeric[letterOf.IntN(len(alphanumeric))]
		}

		for _, text := range []string{
			string(short), hex.EncodeToString(short), base64.StdEncoding.EncodeToString(short), string(letters[:16]),
			string(long), hex.EncodeToString(long), base64.StdEncoding.EncodeToString(long), string(letters),
			strings.ToLower(string(letters[:24])), "adm_" + base64.RawURLEncoding.EncodeToString(long),
		} {
			if err := Guessable([]byte(text)); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

// Words and rows of four occur in random keys, too.
func TestGuessable_AcceptsAWordInARandomKey(t *testing.T) {
	for _, text := range []string{
		"xKeyR7vQ2mZtodo9", "4f9c1234e07bd85a", "b7abcd20f3edc961", "Tq8Admin2vYx0LrH7cZw", "setKq0the5XzvTR8", "9f8e7d6c5b4a", "todo4f81b77c0d9e",
	} {
		if err := Guessable([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
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
