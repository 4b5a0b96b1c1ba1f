package archive

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
)

// Decisions are the actions about the books. Their entries are kept without end, as the books are,
// which have to be there for ten years.
var Decisions = []string{"corrections booked", "month closed", "month held", "month released", "rows of the books disputed", "rows of the books set aside"}

// KeepAudit lets ClickHouse drop entries of the audit stream so many days after theirs, but for those
// of Decisions; 0: never.
func (a *Archive) KeepAudit(ctx context.Context, days int) error {
	wanted, change := fmt.Sprintf("day + toIntervalDay(%d) WHERE action NOT IN ('%s')", days, strings.Join(Decisions, "', '")), "MODIFY TTL "
	if days == 0 {
		wanted, change = "", "REMOVE TTL"
	}

	var kept string
	row := a.conn.QueryRow(ctx, "SELECT extract(engine_full, ' TTL (.*?) SETTINGS') FROM system.tables WHERE database = {database:String} AND name = {table:String}",
		clickhouse.Named("database", a.database), clickhouse.Named("table", a.local(auditTable.name)))
	if err := row.Scan(&kept); err != nil || kept == wanted {
		return a.fault(ctx, "reading system.tables", err)
	}

	return a.exec(ctx, fmt.Sprintf("ALTER TABLE %s %s %s", a.local(auditTable.name), a.onCluster(), change+wanted))
}

// auditDays are the days that a search looks at when it does not name the first.
const auditDays = 30

// auditFilters are the conditions by the names of what is searched for.
var auditFilters = map[string]string{
	"from": "day >= {from:Date}", "to": "day <= {to:Date}", "actor": "actor = {actor:String}", "action": "action = {action:String}",
	"about": "has([toString(account_id), toString(fleet_id), toString(order_id)], {about:String})",
}

// AuditSearch completes what is searched for: from and to, local days that are both included, actor,
// action and about, the id of an account, a fleet or an order. It names what cannot be understood.
func AuditSearch(s url.Values, now time.Time) (wrong []delivery.FieldError) {
	day := func(name string, preset time.Time) time.Time {
		if s.Get(name) == "" {
			s.Set(name, dateOf(preset))
		}

		at, err := time.ParseInLocation(time.DateOnly, s.Get(name), delivery.Istanbul)
		if err != nil || checkTime(at) != nil {
			wrong = append(wrong, delivery.FieldError{Field: name, Message: "must be a day such as 2026-11-21"})
		}
		return at
	}

	to := day("to", now)
	if len(wrong) > 0 {
		to = now
	}

	if from := day("from", to.AddDate(0, 0, 1-auditDays)); len(wrong) == 0 && from.After(to) {
		wrong = append(wrong, delivery.FieldError{Field: "from", Message: "is after the last day"})
	}

	if id, err := delivery.ParseAccountID(s.Get("about")); err == nil {
		s.Set("about", id.String())
	} else if s.Get("about") != "" {
		wrong = append(wrong, delivery.FieldError{Field: "about", Message: "must be the id of an account, a fleet or an order, a UUID of 36 characters"})
	}

	return wrong
}

// auditRow is a row of the table audit.
type auditRow struct {
	At         time.Time          `ch:"day Date; at DateTime64(3, 'UTC')"`
	ID         string             `ch:"id String"`
	Version    int                `ch:"version UInt32"`
	Actor      string             `ch:"actor String"`
	Credential string             `ch:"credential String"`
	Address    string             `ch:"address String"`
	RequestID  string             `ch:"request_id String"`
	Action     string             `ch:"action String"`
	Account    delivery.AccountID `ch:"account_id UUID"`
	Fleet      delivery.FleetID   `ch:"fleet_id UUID"`
	Order      delivery.OrderID   `ch:"order_id UUID"`
	Store      string             `ch:"external_store_id String"`
	Old        string             `ch:"old_values String"`
	New        string             `ch:"new_values String"`
	Outcome    string             `ch:"outcome String"`
}

// auditRows returns the rows of some entries.
func auditRows(entries []audit.Entry) []auditRow {
	rows := make([]auditRow, len(entries))
	for i, e := range entries {
		rows[i] = auditRow{
			At:         e.At,
			ID:         e.ID,
			Version:    e.Version,
			Actor:      e.Actor,
			Credential: e.Credential,
			Address:    e.Address,
			RequestID:  e.RequestID,
			Action:     e.Action,
			Account:    e.Account,
			Fleet:      e.Fleet,
			Order:      e.Order,
			Store:      e.Store,
			Old:        e.Old,
			New:        e.New,
			Outcome:    e.Outcome,
		}
	}

	return rows
}

// AuditEntries are the newest that a search finds, at most limit, newest first.
func (a *Archive) AuditEntries(ctx context.Context, s url.Values, limit int) (found []audit.Entry, err error) {
	where, args := "true", []any{clickhouse.Named("limit", limit)}
	for name, condition := range auditFilters {
		if value := s.Get(name); value != "" {
			where, args = where+" AND "+condition, append(args, clickhouse.Named(name, value))
		}
	}

	err = a.Each(ctx, `SELECT at, id, version, actor, credential, address, request_id, action, account_id, fleet_id, order_id, external_store_id,
	old_values, new_values, outcome FROM audit WHERE `+where+" ORDER BY at DESC, id LIMIT {limit:UInt32}", func(rows driver.Rows) error {
		var e audit.Entry
		var version uint32
		var account, fleet, order uuid.UUID
		err := rows.Scan(&e.At, &e.ID, &version, &e.Actor, &e.Credential, &e.Address, &e.RequestID, &e.Action, &account, &fleet, &order, &e.Store,
			&e.Old, &e.New, &e.Outcome)
		e.Version, e.Account, e.Fleet, e.Order = int(version), delivery.AccountID(account), delivery.FleetID(fleet), delivery.OrderID(order)
		found = append(found, e)

		return err
	}, args...)

	return found, err
}
