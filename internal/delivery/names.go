package delivery

import (
	"strings"
	"unicode"
)

// AbbreviateName shortens the surname, the last word, to its initial, as every
// payload shows a courier (spec, "Delivery rules" 6): "Mehmet Yılmaz" becomes
// "Mehmet Y.". White space is collapsed and the initial is upper-cased as in
// Turkish (i becomes İ). A single word stays as it is. Abbreviating twice
// changes nothing.
func AbbreviateName(full string) string {
	words := strings.Fields(full)
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	words[last] = initial(words[last]) + "."
	return strings.Join(words, " ")
}

// initial is the first letter of a word in upper case with the combining marks
// that belong to it, or its first character when it has no letter.
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

// combiningDot is what is left of an İ that was made small the English way.
const combiningDot = '\u0307'

// FoldName makes names that differ in case only alike, for searching and sorting:
// the Turkish way (İ and i, I and ı) and the English way (I and i) at once, so
// that all four are one letter. People type whichever their keyboard has. Other
// letters stay what they are: ş is not s. What is no UTF-8 becomes U+FFFD. Folding
// twice changes nothing. The result is for comparing, not for showing.
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
