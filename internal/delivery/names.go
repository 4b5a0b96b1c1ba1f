package delivery

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// AbbreviateName returns what vendors and their customers see of a courier's name: the first given name
// and the initial of the surname, in upper case as in Turkish (spec, "Delivery rules" 6). "Mehmet Yılmaz"
// becomes "Mehmet Y.".
//
// Nothing else of the name is shown, since any of it may be a surname: no second name, number, remark
// or sign. A name of one word is a given name; behind a title, before a comma and a title, or when
// its label says that it is a surname, only its initial leaves. Where the surname may be the first word as
// well as the last, as in "YILMAZ Mehmet", two initials leave: "Y. M.". The result is empty if the name
// has no letter. AbbreviateName is idempotent.
func AbbreviateName(full string) string {
	text := outsideBrackets(withPlainSigns(full))
	text, isSurname := behindLabel(text)
	text = betweenDashes(text)

	given, surname, isCertain := splitName(text)
	if isSurname {
		return initial(lastOf(given, surname))
	}

	switch {
	case !isCertain:
		return initial(given) + " " + initial(surname)
	case given == "":
		return initial(surname)
	case surname == "":
		return givenName(given)
	}

	return givenName(given) + " " + initial(surname)
}

// lastOf returns the surname of a name, or its only word.
func lastOf(given, surname string) string {
	if surname == "" {
		return given
	}
	return surname
}

// Signs that separate the parts of a name, with those that look or mean the same. A semicolon, a slash
// and a bar are used like a comma: "Yılmaz / Mehmet".
const (
	likeComma        = ",;/\\|،؛、，；／｜､﹐﹑﹔"
	likeColon        = ":：﹕∶"
	likeApostrophe   = "'’‘ʼ＇"
	likeOpenBracket  = "([{<（［｛＜【「『〔《"
	likeCloseBracket = ")]}>）］｝＞】」』〕》"
)

// withPlainSigns writes every blank, dash, comma, colon, apostrophe and bracket as the ASCII one. An invisible
// character becomes a blank: it may stand between a given name and a surname, and a name that is split
// once too often leaks nothing.
func withPlainSigns(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case isNameLetter(r):
			return r
		case isBlank(r), isInvisible(r):
			return ' '
		case unicode.Is(unicode.Dash, r):
			return '-'
		case strings.ContainsRune(likeComma, r):
			return ','
		case strings.ContainsRune(likeColon, r):
			return ':'
		case strings.ContainsRune(likeApostrophe, r):
			return '\''
		case strings.ContainsRune(likeOpenBracket, r):
			return '('
		case strings.ContainsRune(likeCloseBracket, r):
			return ')'
		}

		return r
	}, s)
}

// outsideBrackets leaves out remarks in brackets: "(Kadıköy Şube) Ayşe Kaya". If fewer than two words
// stand outside, as in "Ali (Veli)", the text stays as it is.
func outsideBrackets(text string) string {
	if !strings.Contains(text, "(") {
		return text
	}

	var outside strings.Builder
	depth := 0
	for _, r := range text {
		if r == ')' {
			depth = max(0, depth-1)
		}

		if depth == 0 {
			outside.WriteRune(r)
		}

		if r == '(' {
			depth++
		}
	}

	if len(namesIn(outside.String())) < 2 {
		return text
	}

	return outside.String()
}

// surnameLabels and givenLabels are words of labels, folded.
var (
	surnameLabels = map[string]bool{"family": true, "last": true, "lastname": true, "soyad": true, "soyadi": true, "soyisim": true, "soyismi": true, "surname": true}
	givenLabels   = map[string]bool{"ad": true, "adi": true, "first": true, "given": true, "isim": true, "ismi": true}
)

// behindLabel returns what follows the last colon that a name follows, since what stands before a colon
// is a label: "Kurye No 5: Ayşe Kaya". isSurname reports that the label is that of a surname alone.
func behindLabel(text string) (name string, isSurname bool) {
	parts := strings.Split(text, ":")
	for i := len(parts) - 1; i > 0; i-- {
		if len(namesIn(parts[i])) > 0 {
			return parts[i], isSurnameLabel(parts[i-1])
		}
	}
	return text, false
}

// isSurnameLabel reports that a label such as "Soyadı" asks for a surname, and not, as "Adı Soyadı"
// does, for the whole name.
func isSurnameLabel(label string) bool {
	hasSurname, hasGiven := false, false
	for _, word := range wordsOf(label) {
		folded := foldWord(word)
		hasSurname = hasSurname || surnameLabels[folded]
		hasGiven = hasGiven || givenLabels[folded]
	}
	return hasSurname && !hasGiven
}

// partEnd stands for a dash between two parts of a text. Texts have no line breaks at this point.
const partEnd = "\n"

// spacedDash finds the dashes that separate parts: a dash without blanks stands within a name.
var spacedDash = strings.NewReplacer(" -", partEnd, "- ", partEnd)

// betweenDashes returns one of the parts between dashes. The part behind a dash counts if it has two
// words besides titles, else the one before it: "Hızlı Kurye - Ayşe Kaya", "Ayşe Kaya - Moto". If no
// part has two words, the text stays as it is.
func betweenDashes(text string) string {
	if !strings.Contains(text, "-") {
		return text
	}

	parts := strings.Split(spacedDash.Replace(text), partEnd)
	for i := len(parts) - 1; i >= 0; i-- {
		if len(namesIn(parts[i])) > 1 {
			return parts[i]
		}
	}

	return text
}

// splitName returns the first given name and the surname of a name; one of them is empty if there is one
// word only. A comma behind one word separates a surname from given names: "Demir, Ayşe". Behind more
// words it may do that, too, or begin a remark: "Yılmaz Demir, Ayşe" and "Ayşe Demir, Kadıköy". Then,
// and where capitals speak for another order, isCertain is false: given and surname are the first and
// the last word, and either may be the surname.
func splitName(text string) (given, surname string, isCertain bool) {
	before, behind := cutAtComma(text)
	givens := namesIn(behind)
	isSurnameFirst := countWritten(before) == 1 && len(wordsOf(behind)) > 0
	if !isSurnameFirst {
		given, surname, isCertain = splitWords(before)
		return given, surname, isCertain && (len(givens) == 0 || surname == "")
	}

	surnames := namesIn(before)
	surname = surnames[len(surnames)-1]
	if len(givens) == 0 {
		return "", surname, true // "Demir, Dr."
	}

	return givens[0], surname, true
}

// cutAtComma cuts a text at the first comma that has a name before it. Without one, all of the text is
// before.
func cutAtComma(text string) (before, behind string) {
	for i, r := range text {
		if r == ',' && len(namesIn(text[:i])) > 0 {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// countWritten counts the names in a text, titles left out. One with a hyphen or an apostrophe
// counts as one.
func countWritten(text string) int {
	endsName := func(r rune) bool { return !isNameLetter(r) && r != '-' && r != '\'' }

	count := 0
	for _, written := range strings.FieldsFunc(text, endsName) {
		if len(namesIn(written)) > 0 {
			count++
		}
	}
	return count
}

// splitWords returns the first and the last word of a name without a comma. The last one is the surname
// for certain, unless the first one alone is in capitals: "YILMAZ Mehmet".
func splitWords(text string) (given, surname string, isCertain bool) {
	words := wordsOfName(text)
	names := withoutTitles(words)
	switch {
	case len(words) == 0:
		return "", "", true
	case len(names) == 0:
		return words[0], "", true // all are titles: one of them is a name
	case len(names) == 1 && isTitle(words[0]):
		return "", names[0], true // "Dr. Yılmaz"
	case len(names) == 1:
		return names[0], "", true
	}

	isOnlyFirstInCapitals := isInCapitals(names[0]) && slices.ContainsFunc(names[1:], hasSmallLetter)

	return names[0], names[len(names)-1], !isOnlyFirstInCapitals
}

// wordsOfName returns the words of a name, titles included. Fleets write numbers and signs beside a
// name, so of several parts the first with two words is taken, else all of them.
func wordsOfName(text string) []string {
	for _, part := range strings.FieldsFunc(text, endsPart) {
		if len(namesIn(part)) > 1 {
			return wordsOf(part)
		}
	}
	return wordsOf(text)
}

// endsPart reports that a code point neither belongs to a name nor separates the words of one.
func endsPart(r rune) bool {
	return !isNameLetter(r) && !strings.ContainsRune(" .'-", r)
}

// isInCapitals reports that a word has two letters or more, all of them capitals. A script without case
// has no capitals.
func isInCapitals(word string) bool {
	isOther := func(r rune) bool { return unicode.IsLetter(r) && !unicode.IsUpper(r) }
	return countLetters(word) >= 2 && !strings.ContainsFunc(word, isOther)
}

// hasSmallLetter reports that a word has two letters or more, and a small one among them.
func hasSmallLetter(word string) bool {
	return countLetters(word) >= 2 && strings.ContainsFunc(word, unicode.IsLower)
}

// countLetters counts the letters of a word without the marks over them.
func countLetters(word string) int {
	count := 0
	for _, r := range word {
		if unicode.IsLetter(r) {
			count++
		}
	}
	return count
}

// namesIn returns the words of a text that are no titles.
func namesIn(text string) []string { return withoutTitles(wordsOf(text)) }

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

// isNameLetter reports that a code point is a letter, or a mark over one, that can be seen.
func isNameLetter(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsMark(r)) && !isInvisible(r)
}

// titles are words beside a name that are no part of it, folded.
var titles = map[string]bool{
	"arş": true, "av": true, "bay": true, "bayan": true, "bey": true, "courier": true, "doç": true, "dr": true, "dt": true,
	"ecz": true, "gör": true, "hanim": true, "jr": true, "kurye": true, "kuryesi": true, "mim": true, "moto": true,
	"motokurye": true, "motor": true, "motorlu": true, "mr": true, "mrs": true, "ms": true, "müh": true, "op": true,
	"öğr": true, "phd": true, "prof": true, "sayin": true, "sn": true, "sr": true, "uzm": true, "üyesi": true, "yrd": true,
}

// isTitle reports that a word is a title, in whatever case it is written.
func isTitle(word string) bool { return titles[foldWord(word)] }

// foldWord folds a word whose letters may be decomposed.
func foldWord(word string) string { return FoldName(norm.NFC.String(word)) }

// withoutTitles returns the words that are no titles, wherever those stand.
func withoutTitles(words []string) []string {
	var names []string
	for _, word := range words {
		if !isTitle(word) {
			names = append(names, word)
		}
	}
	return names
}

// givenName returns a word as it is, or an initial with its point.
func givenName(word string) string {
	if initial(word) == word+"." {
		return word + "."
	}
	return word
}

// initial returns the first letter of a word, in upper case, with the marks over it and a point. It is
// empty for an empty word.
func initial(word string) string {
	if word == "" {
		return ""
	}

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
