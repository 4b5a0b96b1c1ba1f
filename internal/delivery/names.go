package delivery

import (
	"strings"
	"unicode"
)

// AbbreviateName shortens the last of several words to its initial, in upper case as in
// Turkish (spec, "Delivery rules" 6): "Mehmet Yılmaz" becomes "Mehmet Y.". It collapses
// white space. Idempotent.
func AbbreviateName(full string) string {
	words := strings.Fields(full)
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	words[last] = initial(words[last]) + "."
	return strings.Join(words, " ")
}

func initial(word string) string {
	runes := []rune(word)
	start := 0
	for i, r := range runes {
		if unicode.IsLetter(r) {
			start = i
			break
		}
	}
	end := start + 1
	for end < len(runes) && unicode.Is(unicode.Mn, runes[end]) {
		end++
	}
	runes[start] = unicode.TurkishCase.ToUpper(runes[start])
	return string(runes[start:end])
}

// combiningDot is left of an İ that was lower-cased as in English.
const combiningDot = '\u0307'

// FoldName makes names alike that differ in case only, with İ, i, I and ı as one letter,
// which people type alike; ş is not s. Invalid UTF-8 becomes U+FFFD. Idempotent.
func FoldName(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case 'I', 'İ', 'ı':
			return 'i'
		case combiningDot:
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}
