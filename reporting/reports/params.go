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

func (e *ParamError) Error() string { return e.Param + ": " + e.Reason }

// maxStoreLength is that of an externalStoreId, in code points.
const maxStoreLength = 64

// Parse checks the values. Without from it is the first day of the month that to
// is in, without to it is today; now says what day that is. An error is a
// *ParamError.
func (v Values) Parse(now time.Time) (Params, error) {
	p := Params{To: DayOf(now), Store: v.Store}
	var err error
	if v.To != "" {
		if p.To, err = ParseDay(v.To); err != nil {
			return Params{}, &ParamError{Param: "to", Reason: err.Error()}
		}
	}
	p.From = p.To.FirstOfMonth()
	if v.From != "" {
		if p.From, err = ParseDay(v.From); err != nil {
			return Params{}, &ParamError{Param: "from", Reason: err.Error()}
		}
	}
	if p.To < p.From {
		return Params{}, &ParamError{Param: "to", Reason: fmt.Sprintf("%s is before from, %s", p.To, p.From)}
	}
	if v.Account != "" {
		if p.Account, err = delivery.ParseAccountID(v.Account); err != nil || p.Account.IsZero() {
			return Params{}, &ParamError{Param: "account", Reason: "must be the account's id, a UUID of 36 characters"}
		}
	}
	if v.Fleet != "" {
		if p.Fleet, err = delivery.ParseFleetID(v.Fleet); err != nil || p.Fleet.IsZero() {
			return Params{}, &ParamError{Param: "fleet", Reason: "must be the fleet's id, a UUID of 36 characters"}
		}
	}
	if !utf8.ValidString(v.Store) || utf8.RuneCountInString(v.Store) > maxStoreLength {
		return Params{}, &ParamError{Param: "store", Reason: fmt.Sprintf("must be the vendor's id of a store, at most %d characters", maxStoreLength)}
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
