package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// attemptsListed is how many attempts a page of the log has, and answerShown how
// many characters of a receiver's answer: with both at their most a page stays
// below 100 kB.
const (
	attemptsListed = 20
	answerShown    = 800
)

// webhookPage is the page /webhooks/{account}.
type webhookPage struct {
	action
	Account  *delivery.Account
	Receiver *receiver // nil: none is registered
	// Secret is what was just issued: shown this once.
	Secret string
	Log    attemptLog
	Live   string // the address of the parts that refresh themselves
}

// attemptLog is a part of a receiver's attempts, the newest first.
type attemptLog struct {
	State    string
	Tabs     []tab
	Attempts []attempt
	Pager    pager
}

// attempt is one of them.
type attempt struct{ ledger.AttemptRecord }

// Key tells the attempt's elements from those of others.
func (a attempt) Key() string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z') {
			return r
		}
		return '-'
	}, a.EventID) + a.At.UTC().Format("-150405000000")
}

// Tone is the colour of its outcome.
func (a attempt) Tone() string {
	switch a.State {
	case "delivered":
		return "good"
	case "retrying":
		return "warn"
	case "notSent":
		return ""
	}
	return "bad"
}

// Beginning is the beginning of the answer.
func (a attempt) Beginning() string {
	shown := 0
	for i := range a.Answer {
		if shown++; shown > answerShown {
			return a.Answer[:i]
		}
	}
	return a.Answer
}

// IsCut tells that there was more of the answer.
func (a attempt) IsCut() bool { return len(a.Beginning()) < len(a.Answer) }

var outcomes = []string{"delivered", "retrying", "undelivered", "notSent"}

// Problem is what went wrong, where the HTTP status does not say it already.
func (a attempt) Problem() string {
	if a.HTTPStatus != 0 && a.Error == fmt.Sprintf("status: %d", a.HTTPStatus) {
		return ""
	}
	return a.Error
}

// ShortID is the end of the event's id: versions of one order differ there.
func (a attempt) ShortID() string { return "…" + a.EventID[max(0, len(a.EventID)-8):] }

// URL, InFlight and PerSecond are the forms' stored values; empty: none.
func (page *webhookPage) URL() string {
	if page.Receiver == nil {
		return ""
	}
	return page.Receiver.URL
}

// Earlier are the secrets before the present one that still sign.
func (page *webhookPage) Earlier() earlierSecrets {
	var untils []time.Time
	for _, one := range page.Receiver.Earlier {
		untils = append(untils, one.Until)
	}
	return earlierOf(untils)
}

// InFlight is explained at URL.
func (page *webhookPage) InFlight() string { return inputOf(page.Receiver.Limits.InFlight) }

// PerSecond is explained at URL.
func (page *webhookPage) PerSecond() string { return inputOf(page.Receiver.Limits.PerSecond) }

// showWebhook is GET /webhooks/{account}?status=&page=.
func (p *Pages) showWebhook(w http.ResponseWriter, r *http.Request) error {
	return p.answerWebhook(w, r, "", nil)
}

// showWebhookLive is the part of it that refreshes itself.
func (p *Pages) showWebhookLive(w http.ResponseWriter, r *http.Request) error {
	page, misread, err := p.webhook(r)
	if err == nil {
		err = misread
	}
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "webhook-live", page)
}

// answerWebhook shows the page, with a secret that was just issued or with why an
// action was refused.
func (p *Pages) answerWebhook(w http.ResponseWriter, r *http.Request, secret string, refused error) error {
	page, misread, err := p.webhook(r)
	if err != nil {
		return err
	}
	if page.Secret = secret; refused == nil {
		refused = misread
	}
	return p.pages.Show(w, r, "webhook", layout.View{Title: "Webhook of " + page.Account.Name, Data: page, Refused: refused})
}

// webhook is what the page shows; misread says why the log's filters cannot be
// understood.
func (p *Pages) webhook(r *http.Request) (page *webhookPage, misread, err error) {
	id, err := accountID(r)
	if err != nil {
		return nil, nil, err
	}
	page = &webhookPage{action: newAction(r)}
	if page.Account, err = p.ledger.Account(r.Context(), id); err != nil {
		return nil, nil, err
	}
	endpoint, err := p.ledger.WebhookEndpoint(r.Context(), id)
	switch {
	case err == nil:
		page.Receiver = &receiver{endpoint, page.Account.Name}
	case delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured:
		return nil, nil, err
	}
	query := filtersOf(r, "status", "page")
	if err := p.readLog(r, id, query, &page.Log); err != nil {
		return nil, nil, err
	}
	page.Live = address(webhookPath(id)+"/live", query.Values)
	return page, query.err(), nil
}

func (p *Pages) readLog(r *http.Request, id delivery.AccountID, query *filters, log *attemptLog) error {
	if state := query.Get("status"); state != "" && !slices.Contains(outcomes, state) {
		query.refuse("status", "must be "+strings.Join(outcomes, ", ")+" or nothing")
	}
	log.State = query.Get("status")
	records, err := p.ledger.Attempts(r.Context(), id, log.State)
	if err != nil {
		return err
	}
	shown, pg := cut(records, attemptsListed, webhookPath(id), query)
	log.Pager = pg
	for _, a := range shown {
		log.Attempts = append(log.Attempts, attempt{a})
	}
	log.Tabs = []tab{{Name: "all", Address: webhookPath(id), Current: log.State == ""}}
	for _, state := range outcomes {
		log.Tabs = append(log.Tabs, tab{Name: outcomeName(state), Current: log.State == state,
			Address: address(webhookPath(id), url.Values{"status": {state}})})
	}
	return nil
}

func outcomeName(state string) string {
	if state == "notSent" {
		return "not sent"
	}
	return state
}

// Outcome is how the attempt ended, in words.
func (a attempt) Outcome() string { return outcomeName(a.State) }

func webhookPath(id delivery.AccountID) string { return "/webhooks/" + id.String() }
