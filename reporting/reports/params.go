package reports

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// Params say which orders a report is about.
type Params struct {
	From, To Day                // local days, both included
	Account  delivery.AccountID // zero: all
	Fleet    delivery.FleetID   // zero: all
	Store    string             // the vendor's id of a store, in any account; empty: all
}

// Values are parameters as people write them; an empty one is not given.
type Values struct {
	From, To, Account, Fleet, Store string
}

// ParamError says which parameter is wrong, and why. Its text is for the person
// who gave it.
type ParamError struct {
	Param  string // from, to, account, fleet or store
	Reason string
}

// ParamErrors are all that is wrong with some values.
type ParamErrors []ParamError

func (e ParamErrors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Param + ": " + e[i].Reason
	}
	return strings.Join(texts, "; ")
}

// maxStoreLength is that of an externalStoreId, in code points.
const maxStoreLength = 64

// Parse checks the values. Without from it is the first day of the month that to
// is in, without to it is today; now says what day that is. An error is a
// ParamErrors.
func (v Values) Parse(now time.Time) (Params, error) {
	p := Params{To: DayOf(now), Store: v.Store}
	var wrong ParamErrors
	note := func(param, reason string) { wrong = append(wrong, ParamError{Param: param, Reason: reason}) }
	day := func(param, value string, to *Day) {
		if value == "" {
			return
		}
		var err error
		if *to, err = ParseDay(value); err != nil {
			note(param, err.Error())
		}
	}
	day("to", v.To, &p.To)
	p.From = p.To.FirstOfMonth()
	day("from", v.From, &p.From)
	if len(wrong) == 0 && p.To < p.From {
		note("to", fmt.Sprintf("%s is before from, %s", p.To, p.From))
	}
	var err error
	if v.Account != "" {
		if p.Account, err = delivery.ParseAccountID(v.Account); err != nil || p.Account.IsZero() {
			note("account", "must be the account's id, a UUID of 36 characters, or on pages and in downloads the name of exactly one")
		}
	}
	if v.Fleet != "" {
		if p.Fleet, err = delivery.ParseFleetID(v.Fleet); err != nil || p.Fleet.IsZero() {
			note("fleet", "must be the fleet's id, a UUID of 36 characters, or on pages and in downloads the name of exactly one")
		}
	}
	if !utf8.ValidString(v.Store) || utf8.RuneCountInString(v.Store) > maxStoreLength {
		note("store", fmt.Sprintf("must be the vendor's id of a store, at most %d characters", maxStoreLength))
	}
	if len(wrong) > 0 {
		return Params{}, wrong
	}
	return p, nil
}

// account and fleet are as the views take them: empty means all.
func (p *Params) account() string {
	if p.Account.IsZero() {
		return ""
	}
	return p.Account.String()
}

func (p *Params) fleet() string {
	if p.Fleet.IsZero() {
		return ""
	}
	return p.Fleet.String()
}

// String is for titles and logs: "2026-11-01 to 2026-11-30, store moda".
func (p *Params) String() string {
	var b strings.Builder
	b.WriteString(p.From.String() + " to " + p.To.String())
	for _, given := range []struct{ name, value string }{
		{"account", p.account()}, {"fleet", p.fleet()}, {"store", p.Store},
	} {
		if given.value != "" {
			b.WriteString(", " + given.name + " " + given.value)
		}
	}
	return b.String()
}
