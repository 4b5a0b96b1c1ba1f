// Package admin serves the panel's pages of webhooks, accounts, fleets and stores. It reads
// the ledger; each action is one request of the gateway's admin API in the operator's name.
// What was typed is sent as it was typed; inputs have the names of the API's fields. Secrets
// are in the answer to the request that issued them only.
package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/layout"
)

//go:embed page/*.html
var files embed.FS

// Pages is safe for concurrent use.
type Pages struct {
	*layout.Pages
	admin *Client
	forms layout.Once
}

const actionTimeout = 20 * time.Second

// New parses the templates. What an operator does goes to admin.
func New(f *layout.Layout, admin *Client) *Pages {
	return &Pages{Pages: f.Parse("admin", files), admin: admin, forms: layout.Once{Timeout: actionTimeout}}
}

// Routes adds the pages to mux, each for who may see it.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, serve := range p.routes() {
		p.Handle(mux, pattern, serve, auth.Operator)
	}
}

func (p *Pages) routes() map[string]layout.Handler {
	routes := map[string]layout.Handler{}
	page := func(pattern string, show show) {
		routes["GET "+pattern] = func(w http.ResponseWriter, r *http.Request) error { return show(w, r, outcome{}) }
	}
	page("/webhooks", p.listReceivers)
	page("/webhooks/live", p.listReceivers)
	page("/webhooks/{account}/live", p.showWebhook)
	page("/accounts/{account}/use", p.showUse)
	page("/stores", p.listStores)
	for _, one := range p.records() {
		page(one.pattern, one.show)
		for path, a := range one.actions {
			routes["POST "+one.pattern+path] = p.forms.Handler(p.perform(&one, &a))
		}
	}

	for pattern, serve := range routes {
		if strings.Contains(pattern, "{account}") {
			routes[pattern] = exceptFinance(serve)
		}
	}

	return routes
}

// exceptFinance keeps finance's receiver, its secrets and its events from people without the role
// closer, who alone look after it.
func exceptFinance(serve layout.Handler) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := accountID(r)
		if err == nil && id == delivery.FinanceAccount && !seesFinance(r) {
			return delivery.Refuse(delivery.CodeForbidden, "the receiver of finance's own system needs the role closer")
		}
		return serve(w, r)
	}
}

func seesFinance(r *http.Request) bool {
	return auth.IdentityOf(r.Context()).Roles.Include(auth.Closer)
}

// show answers with a page, also after what was done or refused there.
type show func(http.ResponseWriter, *http.Request, outcome) error

type outcome struct {
	issued  *issued
	refused error
}

// record is what a page has forms for. Requests have the record's method and path of the
// admin API, unless the action has its own.
type record struct {
	pattern, method, api string
	show                 show
	version              func(*http.Request) (uint64, error)
	actions              map[string]action // by what follows the page's path
}

func (p *Pages) records() []record {
	return []record{
		{"/accounts", http.MethodPost, "/accounts", p.listAccounts, nil, map[string]action{
			"": {fields: fields{"name": plainText}},
		}},
		{"/accounts/{account}", http.MethodPatch, "/accounts/{account}", p.showAccount, p.accountVersion, map[string]action{
			"/name":   {fields: fields{"name": plainText}, done: "account-renamed"},
			"/state":  {fields: fields{"suspended": flag}, done: "account-"},
			"/events": {fields: fields{"mutedEvents": listOfWords}, done: "account-events"},
			"/limits": {fields: fields{}, limits: true, done: "account-limited"},
			"/secret": {method: http.MethodPost, path: "/credentials", secret: true},
			"/revoke": {method: http.MethodPost, path: "/credentials", secret: true, revoke: true},
		}},
		{"/webhooks/{account}", http.MethodPatch, "/accounts/{account}/webhook", p.showWebhook, p.receiverVersion, map[string]action{
			"/url":    {method: http.MethodPut, fields: fields{"url": plainText}, done: "webhook-moved"}, // the first issues a secret
			"/test":   {method: http.MethodPost, path: "/test", done: "webhook-tested"},
			"/limits": {fields: fields{"maxInFlight": numberOrNull, "maxPerSecond": numberOrNull}, done: "webhook-limited"},
			"/replay": {method: http.MethodPost, path: "/replay", fields: fields{"eventIds": listOfOne, "status": plainText, "since": plainText},
				done: "replayed", nobody: "replayed-none"},
			"/secret": {method: http.MethodPost, path: "/rotate", secret: true},
			"/revoke": {method: http.MethodPost, path: "/rotate", secret: true, revoke: true},
		}},
		{"/fleets", http.MethodPost, "/fleets", p.listFleets, nil, map[string]action{
			"": {fields: fields{"name": plainText, "subRegion": plainText, "avgDeliveryMinutes": number, "avgPickupMinutes": numberOrNull, "coverage": coverageOf}},
		}},
		{"/fleets/{fleet}", http.MethodPatch, "/fleets/{fleet}", p.showFleet, nil, map[string]action{
			"/fields": {fields: fields{"name": plainText, "subRegion": plainText, "avgDeliveryMinutes": number, "avgPickupMinutes": number,
				"requestsPerSecond": number}, done: "fleet-changed"},
			"/coverage":        {fields: fields{"coverage": coverageOf}, done: "fleet-covered"},
			"/state":           {fields: fields{"suspended": flag, "disabled": flag}, done: "fleet-"},
			"/payment-overdue": {method: http.MethodPost, path: "/payment-overdue", done: "overdue", nobody: "overdue-nobody"},
		}},
		{"/stores/{account}/{store}", http.MethodPost, "/accounts/{account}/stores/{store}", p.showStore, nil, map[string]action{
			"/confirm":    {path: "/confirm", fields: fields{"fleetId": plainText}, done: "store-confirmed"},
			"/reject":     {path: "/reject", fields: fields{"fleetId": plainText, "reason": plainText}, done: "store-rejected"},
			"/migrate":    {path: "/migrate", fields: fields{"closingDate": plainText}, done: "store-migrating"},
			"/deactivate": {path: "/deactivate", fields: fields{"reason": plainText}, done: "store-deactivated"},
		}},
	}
}

func accountID(r *http.Request) (delivery.AccountID, error) {
	id, err := delivery.ParseAccountID(r.PathValue("account"))
	if err != nil {
		err = delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
	}
	return id, err
}

func fleetID(r *http.Request) (delivery.FleetID, error) {
	id, err := delivery.ParseFleetID(r.PathValue("fleet"))
	if err != nil {
		err = delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	return id, err
}

func storeID(r *http.Request) (string, error) {
	id := r.PathValue("store")
	if given := r.URL.Query().Get("id"); id == layout.NoSegment && given != "" {
		id = given
	}

	if delivery.CheckExternalStoreID(id) != nil {
		return "", delivery.Refuse(delivery.CodeStoreNotFound, "the account has no such store")
	}
	return id, nil
}

func apiPath(r *http.Request, pattern string) (string, error) {
	text := func(id fmt.Stringer, err error) (string, error) { return id.String(), err }
	segments := strings.Split(pattern[1:], "/")
	for i, segment := range segments {
		var err error
		switch segment {
		case "{account}":
			segments[i], err = text(accountID(r))
		case "{fleet}":
			segments[i], err = text(fleetID(r))
		case "{store}":
			segments[i], err = storeID(r)
		}

		if err != nil {
			return "", err
		}
	}

	return Path(segments...), nil
}

// matches compares folded: who searches for istanbul means İstanbul and ISTANBUL as well.
func matches(wanted string, texts ...string) bool {
	wanted = delivery.FoldName(strings.TrimSpace(wanted))
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(delivery.FoldName(text), wanted) })
}

type fields map[string]func(typed string) any

type action struct {
	method, path string // of the request, below the record's path
	fields       fields // nil: there is no body
	limits       bool   // the form has an account's limits
	done         string // the sentence of page/done.html that says what was done; "x-": see states
	nobody       string // the one when it concerned nobody and nothing
	secret       bool   // issues one, for the version of the record that the page showed
	revoke       bool   // ends every earlier secret
}

// states complete the key of what was done by a button that sets a flag.
var states = map[string]string{"suspended=true": "suspended", "suspended=false": "resumed", "disabled=true": "disabled", "disabled=false": "enabled"}

type issued struct {
	AccountID, FleetID             string // of what was created
	ClientID, ClientSecret, Secret string
	PreviousValidUntil             time.Time
	Accounts, Replayed             int

	Name    string // of what was created
	Revoked bool   // every earlier secret has ended
}

// body is nil for an action without one, and empty when nothing was changed.
func (a *action) body(form url.Values) map[string]any {
	if a.revoke {
		return map[string]any{"revokeOld": true}
	}
	if a.fields == nil {
		return nil
	}

	body := map[string]any{}
	for field, read := range a.fields {
		if changedIn(form, field) {
			body[field] = read(form.Get(field))
		}
	}

	if limits := changedLimits(form); a.limits && len(limits) > 0 {
		body["limits"] = limits
	}

	return body
}

// perform carries out an action and leads back to the page with its form. Secrets and
// refusals are shown at once.
func (p *Pages) perform(of *record, a *action) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		path, err := apiPath(r, of.api+a.path)
		if err != nil {
			return err
		}

		body := a.body(r.PostForm)
		if body != nil && len(body) == 0 {
			return layout.Redirect(w, r, layout.PageOf(r.URL), "unchanged")
		}

		if a.secret {
			var version uint64
			version, err = of.version(r)
			if err == nil && r.PostForm.Get("version") != strconv.FormatUint(version, 10) {
				err = errChanged
			}
		}

		var made issued
		if err == nil {
			err = p.change(r, cmp.Or(a.method, of.method), path, body, &made)
		}

		done := a.done
		if strings.HasSuffix(done, "-") {
			for field, value := range body {
				done += states[fmt.Sprint(field, "=", value)]
			}
		}

		switch {
		case err != nil:
			return of.show(w, r, outcome{refused: err})
		case made.ClientSecret != "" || made.Secret != "":
			made.Name, made.Revoked = r.PostForm.Get("name"), a.revoke
			r.PostForm = url.Values{} // what was typed is done with
			return of.show(w, r, outcome{issued: &made})
		case a.nobody != "" && made.Accounts+made.Replayed == 0:
			done = a.nobody
		}

		if fleet, err := delivery.ParseFleetID(r.PostForm.Get("backToFleet")); err == nil { // a form of the fleet's page
			return layout.Redirect(w, r, "/fleets/"+fleet.String(), done)
		}

		return layout.Redirect(w, r, layout.PageOf(r.URL), done)
	}
}

// change sends an action, also when the browser disconnects. An error is fit to be shown.
func (p *Pages) change(r *http.Request, method, path string, body map[string]any, into any) error {
	var sent any
	if body != nil {
		sent = body
	}

	err := p.admin.Do(context.WithoutCancel(r.Context()), auth.IdentityOf(r.Context()).Name, method, path, sent, into)
	p.Lists.Few.Forget()
	if errors.Is(err, delivery.ErrUnavailable) {
		p.Log.Warn("the admin API is unavailable", "error", err)
		return delivery.Refuse(delivery.CodeServiceUnavailable,
			"The gateway does not answer, so nobody knows whether this was done. Look at what the page shows now, then send it again if need be.")
	}

	return explainCoverage(err, r.PostForm.Get("coverage"))
}

// errChanged refuses a form about a record that was changed since it was shown: what is
// ended is what the page said.
var errChanged = delivery.Refuse(delivery.CodeValidationFailed,
	"This was changed since the page was shown, so nothing was done. Look at it as it is now, then decide.")

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,14})$`)

// number is a JSON number; what is none is sent as text, for the API to refuse.
func number(typed string) any {
	typed = strings.TrimSpace(typed)
	if wholeNumber.MatchString(typed) {
		return json.Number(typed)
	}
	return typed
}

// numberOrNull is number, where an empty field asks for the default.
func numberOrNull(typed string) any {
	if strings.TrimSpace(typed) == "" {
		return nil
	}
	return number(typed)
}

func plainText(typed string) any { return typed }

func listOfOne(typed string) any { return []string{typed} }

// listOfWords is a list of the words of a text, empty for an empty one.
func listOfWords(typed string) any { return append([]string{}, strings.Fields(typed)...) }

// flag is true or false; anything else is sent as text, for the API to refuse.
func flag(typed string) any {
	if typed == "true" || typed == "false" {
		return typed == "true"
	}
	return typed
}

// coverageOf is a pasted area in a body. What is no JSON, and null, which would change
// nothing, goes as a text, which the API refuses.
func coverageOf(pasted string) any {
	if json.Valid([]byte(pasted)) && strings.TrimSpace(pasted) != "null" {
		return json.RawMessage(pasted)
	}
	return pasted
}

// explainCoverage says where a coverage stopped being JSON; the API only saw a text.
func explainCoverage(err error, pasted string) error {
	var refusal *delivery.Error
	if !errors.As(err, &refusal) {
		return err
	}

	var ignored json.RawMessage
	fault := json.Unmarshal([]byte(pasted), &ignored)
	for i := range refusal.Fields {
		if field := &refusal.Fields[i]; field.Field == "coverage" && fault != nil {
			field.Message = "is not JSON: " + fault.Error()
			refusal.Message = refusal.Fields[0].Field + " " + refusal.Fields[0].Message
		}
	}

	return err
}

const shownSuffix = ".shown"

// changedIn reports whether a field was changed. Only those are sent, so that of two
// operators the second does not undo what the first one changed.
func changedIn(form url.Values, field string) bool {
	return form.Has(field) &&
		(!form.Has(field+shownSuffix) || strings.TrimSpace(form.Get(field)) != strings.TrimSpace(form.Get(field+shownSuffix)))
}

type formPage struct {
	// Once numbers this showing of the page; see layout.Once.
	Once   string
	Typed  typed
	Issued *issued // nil: no secret was
}

func newFormPage(r *http.Request, o outcome) formPage {
	return formPage{Once: rand.Text(), Typed: typed{r.PostForm}, Issued: o.issued}
}

type typed struct{ url.Values }

// Or is what was typed into a field. While nothing was, and in a noted field that was not
// changed, it is what is stored by now.
func (t typed) Or(field string, stored any) string {
	if changedIn(t.Values, field) {
		return t.Get(field)
	}
	return fmt.Sprint(stored)
}

// Shown is the note of a field; it stays with what was typed.
func (t typed) Shown(field string, stored any) string {
	if changedIn(t.Values, field) && t.Has(field+shownSuffix) {
		return t.Get(field + shownSuffix)
	}
	return fmt.Sprint(stored)
}

// Area is the pasted coverage; empty when it is too long, as HTML, to be shown again.
func (t typed) Area() string {
	area := t.Get("coverage")
	if len(template.HTMLEscapeString(area)) > 50_000 {
		return ""
	}
	return area
}
