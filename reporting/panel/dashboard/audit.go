package dashboard

import (
	"context"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/layout"
)

const auditRows = 200 // of the page

type auditView struct {
	Search *layout.Filters
	Rows   []ledger.AuditEntry
	Lost   []string
	More   bool

	Finance delivery.AccountID // has no page of an account
}

func (p *Pages) auditTrail(w http.ResponseWriter, r *http.Request) error {
	v := &auditView{Finance: delivery.FinanceAccount, Search: layout.FiltersOf(r, "from", "to", "actor", "action", "about")}
	v.Search.Faults = archive.AuditSearch(v.Search.Values, time.Now())
	if v.Search.Err() == nil {
		parts := p.reading(r.Context())
		read(parts, "who did what (ClickHouse)", &v.Rows, func(ctx context.Context) ([]ledger.AuditEntry, error) {
			return p.archive.AuditEntries(ctx, v.Search.Values, auditRows+1)
		})
		v.Lost = parts.wait()
	}
	if v.More = len(v.Rows) > auditRows; v.More {
		v.Rows = v.Rows[:auditRows]
	}
	return p.Show(w, r, "audit", layout.View{Title: "Audit trail", Refused: v.Search.Err(), Data: v})
}
