package operate

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	"vendorapi/internal/delivery"
)

// longestForm is the most that a form may have in bytes, as for package access:
// a coverage of the largest kind fits unless it is written very loosely.
const longestForm = 1 << 20

// readForm parses a form that the gate had no reason to parse: a request with a
// token of its own, or with the page's proof in a header.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	}
	if err := r.ParseForm(); err != nil {
		return delivery.Refuse(delivery.CodeMalformedRequest, "the form cannot be read or is too large")
	}
	return nil
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,14})$`)

// number is what was typed as the JSON number that it looks like; anything else
// goes as the text that it is, for the API to refuse.
func number(text string) any {
	text = strings.TrimSpace(text)
	if wholeNumber.MatchString(text) {
		return json.Number(text)
	}
	return text
}

// numberOrNull is number, where nothing typed asks for the default.
func numberOrNull(text string) any {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return number(text)
}

// longestSearch bounds what is searched for, in bytes.
const longestSearch = 200

// search is a text as it is compared: trimmed, in one case, and with the two
// Turkish i as one, because who searches for istanbul means İstanbul and
// ISTANBUL as well.
func search(text string) string { return fold(strings.TrimSpace(shorten(text))) }

// shorten keeps the beginning of what is searched for.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestSearch)], "")
}

func fold(text string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case 'I', 'İ', 'ı':
			return 'i'
		}
		return unicode.ToLower(r)
	}, text)
}

// matches tells whether one of the texts holds what is searched for.
func matches(wanted string, texts ...string) bool {
	for _, text := range texts {
		if strings.Contains(fold(text), wanted) {
			return true
		}
	}
	return wanted == ""
}
