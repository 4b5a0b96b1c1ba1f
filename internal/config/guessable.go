package config

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// leastDifferent is how many different bytes a secret has at least. Sixteen random
// hexadecimal digits have fewer once in 30,000 times.
const leastDifferent = 6

// placeholders stand in secrets that nobody has replaced yet, as they are without what is
// no letter.
var placeholders = []string{
	"changeme", "changethis", "replaceme", "replacethis", "placeholder", "password", "example", "secret", "adminkey",
	"yourkey", "insertkey", "testkey", "demokey", "sandbox", "vendorapi", "adminadmin", "administrator", "production",
	"qwerty", "letmein", "welcome", "parola", "degistir",
}

// Guessable returns why a secret cannot be a random one, or nil. The error shows nothing of it.
func Guessable(secret []byte) error {
	different := map[byte]bool{}
	for _, b := range secret {
		different[b] = true
	}

	switch {
	case len(different) < leastDifferent:
		return errors.New("can be guessed: it is made of a few characters")
	case repeats(secret):
		return errors.New("can be guessed: it repeats itself")
	case counts(secret):
		return errors.New("can be guessed: its characters follow each other in order")
	case isPlaceholder(secret):
		return errors.New("can be guessed: it is a placeholder, or made of such words")
	}
	return nil
}

// repeats reports whether the secret is a shorter text, twice or more.
func repeats(secret []byte) bool {
	for period := 1; period <= len(secret)/2; period++ {
		if bytes.Equal(secret[period:], secret[:len(secret)-period]) {
			return true
		}
	}
	return false
}

// counts reports whether three of four bytes follow the one before them by the same step, as
// in 0123456789012345.
func counts(secret []byte) bool {
	steps := map[byte]int{}
	most := 0
	for i := 1; i < len(secret); i++ {
		step := secret[i] - secret[i-1]
		steps[step]++
		most = max(most, steps[step])
	}
	return 4*most >= 3*(len(secret)-1)
}

func isPlaceholder(secret []byte) bool {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(string(secret)))
	return slices.ContainsFunc(placeholders, func(word string) bool { return strings.Contains(letters, word) })
}

// NamedKeyring is a ring with the variable that it comes from.
type NamedKeyring struct {
	Name string
	Keyring
}

// KeyMistakes returns an error for each key that can be guessed, and for each that occurs
// twice: whoever has a key must not have the others with it.
func KeyMistakes(rings ...NamedKeyring) error {
	var faults []error
	places := map[[KeySize]byte]string{}
	for _, ring := range rings {
		for _, kid := range slices.Sorted(maps.Keys(ring.Keys)) {
			place := fmt.Sprintf("%s: key %q", ring.Name, kid)
			key := [KeySize]byte(ring.Keys[kid])
			if err := Guessable(key[:]); err != nil {
				faults = append(faults, fmt.Errorf("%s %w", place, err))
			}
			if other, exists := places[key]; exists {
				faults = append(faults, fmt.Errorf("%s is the same as that of %s", place, other))
			}
			places[key] = place
		}
	}
	return errors.Join(faults...)
}

// BearerMistakes is KeyMistakes for a variable with bearer keys that commas separate.
func BearerMistakes(name, value string, rings ...NamedKeyring) error {
	var faults []error
	keys := SplitList(value)
	for i, key := range keys {
		place := name
		if len(keys) > 1 {
			place = fmt.Sprintf("%s: number %d", name, i+1)
		}
		if err := Guessable([]byte(key)); err != nil {
			faults = append(faults, fmt.Errorf("%s %w", place, err))
		}
		if slices.Contains(keys[:i], key) {
			faults = append(faults, fmt.Errorf("%s is the same as one before it", place))
		}
		for _, ring := range rings {
			if ring.has(key) {
				faults = append(faults, fmt.Errorf("%s is the same as a key of %s", place, ring.Name))
			}
		}
	}
	return errors.Join(faults...)
}

// has reports whether the text of a key is one of the ring's in base64.
func (r NamedKeyring) has(text string) bool {
	for _, key := range r.Keys {
		if subtle.ConstantTimeCompare([]byte(base64.StdEncoding.EncodeToString(key)), []byte(text)) == 1 {
			return true
		}
	}
	return false
}

// PasswordMistake returns why the password of a URL cannot be meant, or nil, also where the
// URL has none. key is the setting's and begins the error.
func PasswordMistake(key, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return nil // whoever connects says so
	}
	password, _ := u.User.Password()
	password = cmp.Or(password, u.Query().Get("password"))
	user := cmp.Or(u.User.Username(), u.Query().Get("username"))

	switch password {
	case "":
		return nil
	case user:
		return fmt.Errorf("%s: the password is the user's name", key)
	}
	if err := Guessable([]byte(password)); err != nil {
		return fmt.Errorf("%s: the password %w", key, err)
	}
	return nil
}
