package admin

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/layout"
)

// longestForm is the most that a form may have in bytes, as for package access:
// a coverage of the largest kind fits unless it is written very loosely.
const longestForm = 1 << 20

// readForm parses a form that the gate had no reason to parse: one with the
// page's proof in a header. What is not UTF-8 could not be sent on as it was
// typed.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	}
	if err := r.ParseForm(); err != nil {
		return delivery.Refuse(delivery.CodeMalformedRequest, "the form cannot be read or is too large")
	}
	broken := func(text string) bool { return !utf8.ValidString(text) }
	for field, values := range r.PostForm {
		if broken(field) || slices.ContainsFunc(values, broken) {
			return delivery.Refuse(delivery.CodeMalformedRequest, "the form is not UTF-8")
		}
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

// shownSuffix names the hidden input in which a form notes what a field held when
// the form was shown.
const shownSuffix = ".shown"

// changedIn tells whether somebody changed a field of the form: whether it holds
// something else than when the form was shown. Only what was changed is sent, so
// that of two operators the second does not put back what the first one changed.
func changedIn(form url.Values, field string) bool {
	if !form.Has(field) {
		return false
	}
	return !form.Has(field+shownSuffix) || strings.TrimSpace(form.Get(field)) != strings.TrimSpace(form.Get(field+shownSuffix))
}

// changes are those of the fields that somebody changed, each as read makes it of
// what was typed.
func changes(form url.Values, read func(string) any, fields ...string) map[string]any {
	changed := map[string]any{}
	for _, field := range fields {
		if changedIn(form, field) {
			changed[field] = read(form.Get(field))
		}
	}
	return changed
}

// plainText is what was typed, as it is.
func plainText(text string) any { return text }

// unchanged answers a form in which nothing was changed.
func unchanged(w http.ResponseWriter, r *http.Request) error {
	return layout.Redirect(w, r, pageOf(r.URL), "unchanged")
}

// typed is a form as it was sent; before anything was, it is empty.
type typed struct{ form url.Values }

// Or is what was typed into a field, and what is stored while nothing was.
func (t typed) Or(field string, stored any) string {
	if values := t.form[field]; len(values) > 0 {
		return values[0]
	}
	return fmt.Sprint(stored)
}

// Kept is Or for a field that notes what it held: where nothing was changed, a
// refused form shows what is stored by now.
func (t typed) Kept(field string, stored any) string {
	if changedIn(t.form, field) {
		return t.form.Get(field)
	}
	return fmt.Sprint(stored)
}

// Shown is the note of such a field. It stays with what was typed: who takes
// that back has changed nothing.
func (t typed) Shown(field string, stored any) string {
	if changedIn(t.form, field) && t.form.Has(field+shownSuffix) {
		return t.form.Get(field + shownSuffix)
	}
	return fmt.Sprint(stored)
}

// longestArea is how long a coverage may be, as HTML, to be shown again.
const longestArea = 50_000

// Area is the coverage that was pasted; empty when it is too long to be shown
// again.
func (t typed) Area() string {
	if t.AreaLeftOut() {
		return ""
	}
	return t.form.Get("coverage")
}

// AreaLeftOut is explained at Area.
func (t typed) AreaLeftOut() bool {
	return len(template.HTMLEscapeString(t.form.Get("coverage"))) > longestArea
}

// Has tells whether a form with this field was sent.
func (t typed) Has(field string) bool { return t.form.Has(field) }
