package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
)

type action struct {
	method, path string
	body         map[string]any // nil: none; empty: nothing was changed
	done         string         // the sentence of page/done.html that says what was done
	nobody       string         // the one when it concerned nobody and nothing
	next         string         // the page to go on to; empty: the one with the form
	revoke       bool           // ends every earlier secret
	err          error          // why it is not sent
}

// issued is what the admin API answers to an action. A secret is shown once.
type issued struct {
	AccountID, FleetID             string
	ClientID, ClientSecret, Secret string
	PreviousValidUntil             time.Time
	Accounts, Replayed             int

	Name    string // of whom the secret is for
	Revoked bool   // every earlier secret has ended
}

// Address is the page of what was created; empty: nothing was.
func (i *issued) Address() string {
	switch {
	case i.AccountID != "":
		return "/accounts/" + url.PathEscape(i.AccountID)
	case i.FleetID != "":
		return "/fleets/" + url.PathEscape(i.FleetID)
	}
	return ""
}

type outcome struct {
	issued  *issued
	refused error
}

func (p *Pages) show(page func(http.ResponseWriter, *http.Request, outcome) error) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error { return page(w, r, outcome{}) }
}

// perform carries out an action and leads back to the page with its form. Secrets and
// refusals are shown at once.
func (p *Pages) perform(w http.ResponseWriter, r *http.Request, a action, show func(http.ResponseWriter, *http.Request, outcome) error) error {
	if a.body != nil && len(a.body) == 0 {
		return layout.Redirect(w, r, pageOf(r.URL), "unchanged")
	}
	var made issued
	err := a.err
	if err == nil {
		err = p.change(r, a, &made)
	}
	switch {
	case err != nil:
		return show(w, r, outcome{refused: err})
	case made.ClientSecret != "" || made.Secret != "":
		made.Name, made.Revoked = r.PostForm.Get("name"), a.revoke
		r.PostForm = url.Values{} // what was typed is done with
		return show(w, r, outcome{issued: &made})
	case a.nobody != "" && made.Accounts+made.Replayed == 0:
		a.done = a.nobody
	}
	if a.next == "" {
		a.next = pageOf(r.URL)
	}
	return layout.Redirect(w, r, a.next, a.done)
}

// change sends an action, also when the browser goes away. An error is fit to be shown.
func (p *Pages) change(r *http.Request, a action, into any) error {
	operator := auth.IdentityOf(r.Context()).Name
	var body any
	if a.body != nil {
		body = a.body
	}
	err := p.admin.Do(context.WithoutCancel(r.Context()), operator, a.method, a.path, body, into)
	p.accounts.Forget()
	p.receivers.Forget()
	if errors.Is(err, delivery.ErrUnavailable) {
		p.log.Warn("the admin API is unavailable", "error", err)
		return delivery.Refuse(delivery.CodeServiceUnavailable,
			"The gateway does not answer, so nobody knows whether this was done. Look at what the page shows now, then send it again if need be.")
	}
	return explainCoverage(err, r.PostForm.Get("coverage"))
}

// sameVersion refuses a form about a record that was changed since it was shown.
func sameVersion(r *http.Request, version uint64) error {
	if r.PostForm.Get("version") == strconv.FormatUint(version, 10) {
		return nil
	}
	return delivery.Refuse(delivery.CodeValidationFailed,
		"This was changed since the page was shown, so nothing was done. Look at it as it is now, then decide.")
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,14})$`)

// number is a JSON number; what is none is sent as text, for the API to refuse.
func number(text string) any {
	text = strings.TrimSpace(text)
	if wholeNumber.MatchString(text) {
		return json.Number(text)
	}
	return text
}

// numberOrNull is number, where an empty field asks for the default.
func numberOrNull(text string) any {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return number(text)
}

func plainText(text string) any { return text }

// flag is true or false; anything else is sent as text, for the API to refuse.
func flag(text string) any {
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	return text
}

func setFlag(r *http.Request, field, doneTrue, doneFalse string) action {
	wanted := flag(r.PostForm.Get(field))
	if wanted == true {
		return action{body: map[string]any{field: wanted}, done: doneTrue}
	}
	return action{body: map[string]any{field: wanted}, done: doneFalse}
}

// shownSuffix names the hidden input with what a field held when it was shown.
const shownSuffix = ".shown"

// changedIn reports whether a field was changed. Only those are sent, so that of two
// operators the second does not undo what the first one changed.
func changedIn(form url.Values, field string) bool {
	if !form.Has(field) {
		return false
	}
	return !form.Has(field+shownSuffix) || strings.TrimSpace(form.Get(field)) != strings.TrimSpace(form.Get(field+shownSuffix))
}

func changes(form url.Values, read func(string) any, fields ...string) map[string]any {
	changed := map[string]any{}
	for _, field := range fields {
		if changedIn(form, field) {
			changed[field] = read(form.Get(field))
		}
	}
	return changed
}

// formPage is what every page with forms has.
type formPage struct {
	// Once numbers this showing of the page; see Pages.once.
	Once   string
	Typed  typed
	Issued *issued // nil: no secret was
}

func newFormPage(r *http.Request, o outcome) formPage {
	return formPage{Once: rand.Text(), Typed: typed{r.PostForm}, Issued: o.issued}
}

// typed is a form as it was sent; empty before one was.
type typed struct{ form url.Values }

func (t typed) Has(field string) bool { return t.form.Has(field) }

// Or is what was typed into a field, and what is stored while nothing was.
func (t typed) Or(field string, stored any) string {
	if t.Has(field) {
		return t.form.Get(field)
	}
	return fmt.Sprint(stored)
}

// Kept is Or for a noted field: unchanged, it shows what is stored by now.
func (t typed) Kept(field string, stored any) string {
	if changedIn(t.form, field) {
		return t.form.Get(field)
	}
	return fmt.Sprint(stored)
}

// Shown is the note of such a field; it stays with what was typed.
func (t typed) Shown(field string, stored any) string {
	if changedIn(t.form, field) && t.Has(field+shownSuffix) {
		return t.form.Get(field + shownSuffix)
	}
	return fmt.Sprint(stored)
}

// longestArea is how long a coverage may be, as HTML, to be shown again.
const longestArea = 50_000

// Area is the pasted coverage; empty when it is too long to be shown again.
func (t typed) Area() string {
	if t.AreaLeftOut() {
		return ""
	}
	return t.form.Get("coverage")
}

func (t typed) AreaLeftOut() bool {
	return len(template.HTMLEscapeString(t.form.Get("coverage"))) > longestArea
}
