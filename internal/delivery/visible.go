package delivery

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Texts come from phones, chats and tills, which put code points between the letters that
// nobody sees: marks of direction, of where a word may break, fillers. They are taken away from
// what people read, and refused in ids, which programs compare.

// firstInvisible is the first code point above it that can be invisible, but for softHyphen.
const firstInvisible = '\u034f'

const (
	softHyphen        = '\u00ad'
	zeroWidthJoiner   = '\u200d'
	zeroWidthNoJoiner = '\u200c'
	objectReplacement = '\ufffc' // stands for what could not be pasted
	brailleBlank      = '\u2800'
	nullNotehead      = '\U0001d159'
	enclosingKeycap   = '\u20e3'
	blackFlag         = '\U0001f3f4'
	firstTag          = '\U000e0020'
	cancelTag         = '\U000e007f'

	zeroWidthSpace        = '\u200b'
	mongolianSeparator    = '\u180e'
	hangulChoseongFiller  = '\u115f'
	hangulJungseongFiller = '\u1160'
	hangulFiller          = '\u3164'
	halfwidthHangulFiller = '\uffa0'
	hieroglyphFullBlank   = '\U00013441'
	hieroglyphHalfBlank   = '\U00013442'
)

// isInvisible reports that a code point prints nothing and is no white space: all that Unicode
// calls Default_Ignorable or a format character, but for the few of them that are signs, and what
// stands for nothing.
func isInvisible(r rune) bool {
	if r < firstInvisible {
		return r == softHyphen
	}
	if unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
		return false
	}

	switch r {
	case objectReplacement, nullNotehead, hieroglyphFullBlank, hieroglyphHalfBlank:
		return true
	}

	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// isBlank is white space, and what looks like it.
func isBlank(r rune) bool { return unicode.IsSpace(r) || r == brailleBlank }

// looksBlank reports that a code point is no white space of Unicode, but looks like a blank or stands
// between words as one does.
func looksBlank(r rune) bool {
	switch r {
	case zeroWidthSpace, brailleBlank, mongolianSeparator, hieroglyphFullBlank, hieroglyphHalfBlank,
		hangulFiller, halfwidthHangulFiller, hangulChoseongFiller, hangulJungseongFiller:
		return true
	}
	return false
}

// isPlain reports that a text has only visible ASCII and single blanks within, as most have.
func isPlain(s string) bool {
	previous := byte(' ') // none at the beginning
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c > '~' || c == ' ' && previous == ' ' {
			return false
		}
		previous = c
	}
	return previous != ' ' || s == ""
}

// Visible returns a text without the code points that nobody sees, and without blanks at its
// ends. What has a meaning stays: a joiner or selector of an emoji, and those between the
// letters of scripts that use them, such as Persian. What looks like a blank becomes one, unless it
// stands beside one, so that it still separates words. Line and paragraph separators become line
// breaks. Invalid UTF-8 stays as it is. Visible is idempotent.
func Visible(s string) string {
	if !hasUnseen(s) {
		return strings.TrimFunc(s, isBlank)
	}

	var seen strings.Builder
	var previous rune // the last one written
	for i := 0; i < len(s); {
		if flag := flagOf(s[i:]); flag != "" {
			seen.WriteString(flag)
			previous = cancelTag
			i += len(flag)
			continue
		}

		r, size := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+size]
		i += size
		switch {
		case isSeparator(r):
			seen.WriteByte('\n')
			previous = '\n'
		case looksBlank(r):
			next, _ := utf8.DecodeRuneInString(s[i:])
			isBesideBlank := isBlank(previous) || isBlank(next) || looksBlank(next)
			if !isBesideBlank {
				seen.WriteByte(' ')
				previous = ' '
			}
		case !isInvisible(r) || isMeant(previous, r, s[i:]):
			seen.WriteString(part)
			previous = r
		}
	}

	return strings.TrimFunc(seen.String(), isBlank)
}

// hasUnseen reports that Visible would change more of a text than its ends.
func hasUnseen(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return isInvisible(r) || isSeparator(r) || looksBlank(r) })
}

// isMeant reports that an invisible code point changes how its neighbours look. rest is what
// follows it.
func isMeant(previous, r rune, rest string) bool {
	next, _ := utf8.DecodeRuneInString(rest)
	isSelector := unicode.Is(unicode.Variation_Selector, r)
	isKeycap := next == enclosingKeycap && strings.ContainsRune("0123456789#*", previous)
	switch {
	case isSelector && isKeycap:
		return true
	case isSelector:
		return isShaped(previous)
	case r == zeroWidthJoiner, r == zeroWidthNoJoiner:
		isAfterSelector := unicode.Is(unicode.Variation_Selector, previous)
		return (isShaped(previous) || isAfterSelector) && isShaped(next)
	}

	return false
}

// isShaped reports that a code point looks different beside a joiner or selector: symbols, and
// the letters and marks of all scripts but those in which a joiner does nothing.
func isShaped(r rune) bool {
	if r <= unicode.MaxASCII || r == utf8.RuneError || isInvisible(r) || isBlank(r) || unicode.IsControl(r) {
		return false
	}
	isDiacritic := r >= '\u0300' && r <= '\u036f'
	return !isDiacritic && !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Nd)
}

// flagOf is the flag of a region, such as Scotland's, at the beginning of a text, or empty: a
// black flag, three to six letters or digits in tags, and their end. Other tags hide text.
func flagOf(s string) string {
	tags, found := strings.CutPrefix(s, string(blackFlag))
	if !found {
		return ""
	}

	letters := 0
	for i, r := range tags {
		switch {
		case r == cancelTag && letters >= 3:
			return s[:len(string(blackFlag))+i+utf8.RuneLen(r)]
		case letters < 6 && isTagLetter(r):
			letters++
		default:
			return ""
		}
	}

	return ""
}

func isTagLetter(r rune) bool {
	c := r - firstTag + ' '
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z'
}

// seenLength counts what can be seen of a text: neither marks over other characters nor
// invisible ones, and one for all blanks in a row.
func seenLength(s string) int {
	n, blank := 0, false
	for _, r := range s {
		switch {
		case isBlank(r):
			if !blank {
				n++
			}
			blank = true
		case isInvisible(r), unicode.In(r, unicode.Mn, unicode.Me):
		default:
			n++
			blank = false
		}
	}

	return n
}

// pasted returns a number as people paste it without invisible characters, none of which can
// stand for a digit, and without blanks at its ends.
func pasted(s string) string {
	if isPlain(s) {
		return s
	}

	seen := strings.Map(func(r rune) rune {
		if isInvisible(r) || isSeparator(r) {
			return -1
		}
		return r
	}, s)

	return strings.TrimFunc(seen, isBlank)
}

// isSeparator is a line or paragraph separator of Unicode.
func isSeparator(r rune) bool { return r == '\u2028' || r == '\u2029' }

// unreadableDigit names the first code point of a number that is no visible ASCII, such as a digit
// of another script, or is empty. s is the number as it was sent, in which places are counted; what pasted
// takes away is not named.
func unreadableDigit(s string) string {
	isDropped := func(r rune) bool { return isInvisible(r) || isSeparator(r) }
	inner := strings.TrimFunc(s, func(r rune) bool { return isDropped(r) || isBlank(r) })
	offset := strings.Index(s, inner)

	for i, r := range inner {
		isReadable := r >= ' ' && r <= '~'
		if !isReadable && !isDropped(r) {
			return "; " + at(s, offset+i)
		}
	}

	return ""
}

// at names a code point and where it stands: "character 5 is U+0007".
func at(s string, index int) string {
	r, _ := utf8.DecodeRuneInString(s[index:])
	return fmt.Sprintf("character %d is %U", utf8.RuneCountInString(s[:index])+1, r)
}

// idFault says why a text is refused as an id that programs compare, or is empty: it is taken
// as it is, so it must not have what nobody sees, and a letter with a mark has one form only.
func idFault(id string) string {
	if isPlain(id) {
		return ""
	}
	if fault := controlFault(id, id, true); fault != "" {
		return fault
	}
	if i := strings.IndexFunc(id, isInvisible); i >= 0 {
		return "must not contain invisible characters; " + at(id, i)
	}

	const ends = "must not begin or end with white space; "
	first, _ := utf8.DecodeRuneInString(id)
	last, size := utf8.DecodeLastRuneInString(id)
	switch {
	case id == "":
		return ""
	case isBlank(first):
		return ends + at(id, 0)
	case isBlank(last):
		return ends + at(id, len(id)-size)
	}

	composed := norm.NFC.String(id)
	if composed == id {
		return ""
	}

	differs := 0
	for differs < len(id) && differs < len(composed) && id[differs] == composed[differs] {
		differs++
	}

	for !utf8.RuneStart(id[differs]) {
		differs--
	}

	return "must be composed (NFC of Unicode); from there on it is not: " + at(id, differs)
}
