package delivery

import (
	"errors"
	"strings"
)

const phoneDigits = 10

var errPhone = errors.New("must have 10 digits, the first of them not 0, after +90 and a leading 0 are stripped; no blanks, dashes or brackets")

// NormalizePhone reads an optional +90, then an optional 0, then exactly 10
// ASCII digits of which the first is not 0, and returns those 10 (design
// section 9). White space around the number is ignored; separators inside it
// are refused, because what looks like a separator may be a missing digit. The
// error's text completes a sentence that begins with the field's name.
func NormalizePhone(s string) (string, error) {
	s = strings.TrimSpace(s)
	s = strings.TrimPrefix(s, "+90")
	s = strings.TrimPrefix(s, "0")
	if len(s) != phoneDigits || s[0] == '0' {
		return "", errPhone
	}
	if _, rest := cutDigits(s); rest != "" {
		return "", errPhone
	}
	return s, nil
}
