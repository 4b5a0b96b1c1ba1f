package delivery

import (
	"strings"
	"unicode"
)

// AbbreviateName returns of a courier's name the first given name and the initial of the surname, in
// upper case as in Turkish (spec, "Delivery rules" 6): "Mehmet Yılmaz" becomes "Mehmet Y.". Nothing
// else of the name leaves, since a surname may stand anywhere in it: no second name, number, remark
// or sign. A name of one word is a given name, but behind a title it is abbreviated, too. What has
// no letter becomes empty. Idempotent.
func AbbreviateName(full string) string {
	words, hasTitle := withoutTitles(nameWords(full))
	switch {
	case len(words) == 0:
		return ""
	case len(words) == 1 && hasTitle:
		return initial(words[0])
	case len(words) == 1:
		return givenName(words[0])
	}
	return givenName(words[0]) + " " + initial(words[len(words)-1])
}

// nameWords are the words of a name, the given one first. Fleets write remarks beside a name, so of
// several parts the first with at least two words is taken, else all of them. In "Demir, Ayşe" the given
// name stands behind the comma.
func nameWords(full string) []string {
	if surname, given, hasComma := strings.Cut(full, ","); hasComma {
		surnames, givens := wordsOf(surname), wordsOf(given)
		if len(surnames) > 0 && len(givens) > 0 {
			return []string{givens[0], surnames[len(surnames)-1]}
		}
	}

	for _, part := range strings.FieldsFunc(dashes.Replace(full), endsPart) {
		words := wordsOf(part)
		if len(words) > 1 {
			return words
		}
	}
	return wordsOf(full)
}

// dashes makes another sign of a hyphen beside a blank, which stands between parts, not in a name.
var dashes = strings.NewReplacer(" -", "|", "- ", "|")

// endsPart reports that a code point neither belongs to a name nor separates the words of one.
func endsPart(r rune) bool {
	const separators = ".'’-‐‑"
	return !isNameLetter(r) && !isBlank(r) && !isInvisible(r) && !strings.ContainsRune(separators, r)
}

// wordsOf splits a text at everything that is no letter.
func wordsOf(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !isNameLetter(r) })
	kept := words[:0]
	for _, word := range words {
		if strings.ContainsFunc(word, unicode.IsLetter) {
			kept = append(kept, word)
		}
	}
	return kept
}

// isNameLetter reports that a code point is a letter, or a mark over one.
func isNameLetter(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) && !isInvisible(r) }

// titles are what stands before a name, or behind it, folded.
var titles = map[string]bool{
	"av": true, "bay": true, "bayan": true, "bey": true, "doç": true, "dr": true, "dt": true, "ecz": true, "hanim": true,
	"kurye": true, "mim": true, "mr": true, "mrs": true, "ms": true, "müh": true, "op": true, "öğr": true, "prof": true,
	"sayin": true, "sn": true, "uzm": true, "yrd": true,
}

// withoutTitles leaves out the titles at both ends; hasTitle tells of one before the name. Of words that
// are all titles the first is a name.
func withoutTitles(words []string) (names []string, hasTitle bool) {
	first, end := 0, len(words)
	for first < end && titles[FoldName(words[first])] {
		first++
	}
	for end > first && titles[FoldName(words[end-1])] {
		end--
	}
	if first == end {
		return words[:min(1, end)], false
	}
	return words[first:end], first > 0
}

// givenName is a word, or an initial with its point.
func givenName(word string) string {
	if initial(word) == word+"." {
		return word + "."
	}
	return word
}

// initial is the first letter of a word, in upper case, with the marks over it and a point.
func initial(word string) string {
	runes := []rune(word)
	start := 0
	for !unicode.IsLetter(runes[start]) {
		start++
	}
	end := start + 1
	for end < len(runes) && unicode.IsMark(runes[end]) {
		end++
	}
	runes[start] = unicode.TurkishCase.ToUpper(runes[start])
	return string(runes[start:end]) + "."
}
