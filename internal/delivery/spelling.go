package delivery

import (
	"strings"
	"unicode/utf8"
)

// maxShownName is how much of a member's name a message shows, in code points.
const maxShownName = 64

// IsMisspelt reports that the path of an unknown member is almost that of a field beside it:
// its name differs in case, in signs between its words, or in a letter or two.
func IsMisspelt(unknown, field string) bool {
	parent, name := parentOf(unknown)
	fieldParent, fieldName := parentOf(field)
	if parent != fieldParent || unknown == field || len(name) > 2*len(fieldName) {
		return false
	}

	given, wanted := bareName(name), bareName(fieldName)
	slips := 1
	if len(wanted) >= 8 {
		slips = 2
	}

	return given == wanted || len(wanted) >= 4 && editDistance(given, wanted) <= slips
}

// parentOf splits a path into the object that holds a member, empty for the whole, and the member's name.
func parentOf(path string) (parent, name string) {
	dot := strings.LastIndexByte(path, '.')
	if dot < 0 {
		return "", path
	}
	return path[:dot], path[dot+1:]
}

// bareName is a name without case and without signs between its words.
func bareName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || isBlank(r) || isInvisible(r) {
			return -1
		}
		return r
	}, FoldName(name))
}

// editDistance counts the letters that must be added, left out or replaced to make one text of the
// other.
func editDistance(a, b string) int {
	row := make([]int, utf8.RuneCountInString(b)+1)
	for i := range row {
		row[i] = i
	}

	for i, r := range []rune(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j, other := range []rune(b) {
			replaced := diagonal
			if r != other {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(row)-1]
}
