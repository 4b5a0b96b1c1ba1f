package dashboard

import (
	"context"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/layout"
)

// What the page of the audit trail shows unless it is asked for something else.
const (
	auditDays = 30
	auditRows = 200
)

type auditView struct {
	From, To, Actor, Action, About string
	Rows                           []auditRow
	Lost                           []string
	More                           bool
}

type auditRow struct {
	archive.Audit
	AccountName, FleetName string
}

func (p *Pages) auditTrail(w http.ResponseWriter, r *http.Request) error {
	query := layout.FiltersOf(r, "from", "to", "actor", "action", "about")
	day := func(name string, preset time.Time) time.Time {
		given := layout.Parsed(query, name, "must be a day such as 2026-11-21", func(text string) (time.Time, error) {
			return time.ParseInLocation(time.DateOnly, text, delivery.Istanbul)
		})
		if given.IsZero() {
			return preset
		}
		return given
	}
	layout.Parsed(query, "about", "must be the id of an account, a fleet or an order, a UUID of 36 characters", delivery.ParseAccountID)
	s := archive.AuditSearch{Limit: auditRows + 1, To: day("to", archive.BusinessDay(time.Now()))}
	if s.From = day("from", s.To.AddDate(0, 0, 1-auditDays)); s.From.After(s.To) {
		query.Refuse("from", "is after the last day")
	}
	s.Actor, s.Action, s.About = query.Get("actor"), query.Get("action"), query.Get("about")
	v := &auditView{From: layout.ISODay(s.From), To: layout.ISODay(s.To), Actor: s.Actor, Action: s.Action, About: s.About}
	var accounts, fleets layout.Names
	var found []archive.Audit
	parts := p.reading(r.Context())
	if query.Err() == nil {
		read(parts, "who did what (ClickHouse)", &found, func(ctx context.Context) ([]archive.Audit, error) { return p.archive.AuditEntries(ctx, s) })
		read(parts, "names of accounts", &accounts, p.Lists.AccountNames)
		read(parts, "names of fleets", &fleets, p.Lists.FleetNames)
	}
	v.Lost, v.More = parts.wait(), len(found) > auditRows
	for _, e := range found[:min(len(found), auditRows)] {
		row := auditRow{Audit: e}
		if !e.Account.IsZero() {
			row.AccountName = accounts.Of(e.Account, "account ")
		}
		if !e.Fleet.IsZero() {
			row.FleetName = fleets.Of(e.Fleet, "fleet ")
		}
		v.Rows = append(v.Rows, row)
	}
	return p.Show(w, r, "audit", layout.View{Title: "Audit trail", Refused: query.Err(), Data: v})
}
