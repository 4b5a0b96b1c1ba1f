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
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// leastDifferent is how many different bytes a secret has at least. Sixteen random
// hexadecimal digits have fewer once in 30,000 times.
const leastDifferent = 6

// placeholders stand in secrets that nobody has replaced yet, and in no random one. A text of
// 44 random characters (base64) spells one of the four of six letters about once in a million
// times. Letters have two of 64 characters, those that a digit stands for three, so 732 of
// 64⁶ texts are one of them, at each of 39 places; of its letters alone 4 of 26⁶ are, at fewer
// places. The longer words add little to that.
var placeholders = []string{
	"changeme", "changeit", "changethis", "replaceme", "replacethis", "placeholder", "password", "passwort", "example", "secret", "adminkey",
	"yourkey", "insertkey", "testkey", "demokey", "sandbox", "vendorapi", "adminadmin", "administrator", "production",
	"qwerty", "qwertz", "letmein", "welcome", "parola", "degistir",
}

// words are what people make secrets of. They are too short to be refused wherever they stand:
// see isMostlyKnown. None can be spelled with hexadecimal digits.
var words = []string{
	"admin", "root", "user", "login", "system", "master", "key", "token", "pass", "private", "public",
	"vendor", "delivery", "gateway", "worker", "reporting", "redis", "clickhouse", "webhook", "tracking", "panel",
	"test", "demo", "dummy", "default", "please", "change", "replace", "insert", "todo", "fixme",
	"the", "this", "that", "set", "your", "with", "here", "real", "random", "before",
	"sifre", "gizli", "anahtar", "yonetici", "kullanici", "deneme", "ornek", "lutfen", "buraya", "yeni", "teslimat", "kurye", "siparis",
	"geheim",
}

// keyboardRows are what fingers and counting follow, in both directions: QWERTY, QWERTZ and
// Turkish Q, whose letters are written here as folded makes them.
var keyboardRows = []string{
	"01234567890123456789", "abcdefghijklmnopqrstuvwxyz",
	"qwertyuiopgu", "qwertzuiopu", "asdfghjklsi", "asdfghjkloa", "zxcvbnmoc", "yxcvbnm",
	"1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik", "1qay2wsx3edc4rfv5tgb6zhn7ujm8ik", "1q2w3e4r5t6y7u8i9o0p", "1q2w3e4r5t6z7u8i9o0p",
}

// rowLength is how many characters that follow each other in a row are taken for one.
const rowLength = 4

// rowPieces has every piece of that length of a row, in both directions.
var rowPieces = piecesOf(keyboardRows)

func piecesOf(rows []string) map[string]bool {
	pieces := map[string]bool{}
	for _, row := range rows {
		for start := range len(row) - rowLength + 1 {
			piece := []byte(row[start : start+rowLength])
			pieces[string(piece)] = true
			slices.Reverse(piece)
			pieces[string(piece)] = true
		}
	}

	return pieces
}

// Guessable returns why a secret cannot be a random one, or nil. The error shows nothing of it.
func Guessable(secret []byte) error {
	different := map[byte]bool{}
	for _, b := range secret {
		different[b] = true
	}

	text := folded(secret)
	undoubled := slices.Compact(bytes.Clone(secret)) // 0123 for 00112233

	switch {
	case len(different) < leastDifferent:
		return errors.New("can be guessed: it is made of a few characters")
	case repeats(secret):
		return errors.New("can be guessed: it repeats itself")
	case counts(secret) || counts(undoubled):
		return errors.New("can be guessed: its characters follow each other in order")
	case isPlaceholder(text):
		return errors.New("can be guessed: it is a placeholder, or made of such words")
	case isMostlyKnown(text, text) || isMostlyKnown(folded(undoubled), text):
		return errors.New("can be guessed: it is made of words and of rows of a keyboard")
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

// folded returns a secret in lower case, with plain letters for Turkish ones, and without what
// separates words.
func folded(secret []byte) string {
	decomposed := norm.NFD.String(strings.ToLower(string(secret))) // ş as s and a mark
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Mn, r), strings.ContainsRune(" -_.:", r):
			return -1
		case r == 'ı':
			return 'i'
		}
		return r
	}, decomposed)
}

// spellings replace characters that stand for letters, as in P@ssw0rd. 1 is an i or an l.
var spellings = []*strings.Replacer{
	strings.NewReplacer("@", "a", "4", "a", "3", "e", "0", "o", "$", "s", "5", "s", "!", "i", "1", "i"),
	strings.NewReplacer("@", "a", "4", "a", "3", "e", "0", "o", "$", "s", "5", "s", "!", "i", "1", "l"),
}

// isPlaceholder reports whether a folded text spells one of the placeholders, also by its letters
// alone: change/me/now, q1w2e3r4t5y6.
func isPlaceholder(text string) bool {
	readings := []string{lettersOf(text)}
	for _, spelling := range spellings {
		readings = append(readings, spelling.Replace(text))
	}
	return slices.ContainsFunc(readings, func(reading string) bool {
		return slices.ContainsFunc(placeholders, func(word string) bool { return strings.Contains(reading, word) })
	})
}

func lettersOf(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) {
			return -1
		}
		return r
	}, text)
}

// isMostlyKnown reports whether words and rows leave no more of a folded text than a third of
// the whole.
//
// Sixteen random characters are refused once in a hundred million times. Of hexadecimal digits
// one of the rows' 30 pieces begins at a place with 30 of 16⁴, which is 1 of 2,000. Eleven known
// characters need three pieces, which have 35 ways to stand in sixteen places: 35 of 2,000³ is
// 4 of a thousand million, and longer rows make it 7. Of letters and digits a word of three
// letters or a piece of four begins at a place with 1 of 2,500, and the same reckoning gives 2
// of a thousand million. A longer key has room for more pieces, but needs more of them.
func isMostlyKnown(text, whole string) bool {
	known := make([]bool, len(text))

	allWords := slices.Concat(words, placeholders)
	for _, letters := range spellings {
		spelled := letters.Replace(text) // as long as the text
		for _, word := range allWords {
			markWord(known, spelled, word)
		}
	}

	for start := range len(text) - rowLength + 1 {
		if rowPieces[text[start:start+rowLength]] {
			markPlaces(known[start : start+rowLength])
		}
	}

	unknown := 0
	for _, isKnown := range known {
		if !isKnown {
			unknown++
		}
	}

	return 3*unknown <= len(whole)
}

// markWord sets the places of a word wherever the text has it.
func markWord(known []bool, text, word string) {
	for start := 0; ; start++ {
		offset := strings.Index(text[start:], word)
		if offset < 0 {
			return
		}
		start += offset
		markPlaces(known[start : start+len(word)])
	}
}

func markPlaces(known []bool) {
	for i := range known {
		known[i] = true
	}
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
