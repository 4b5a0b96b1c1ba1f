package archive

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

// KeepAudit lets ClickHouse drop entries of the audit stream so many days after theirs; 0: never.
func (a *Archive) KeepAudit(ctx context.Context, days int) error {
	wanted, change := "", "REMOVE TTL"
	if days > 0 {
		wanted = fmt.Sprintf("day + toIntervalDay(%d)", days)
		change = "MODIFY TTL " + wanted
	}
	var kept string
	row := a.conn.QueryRow(ctx, "SELECT extract(engine_full, ' TTL (.*?) SETTINGS') FROM system.tables WHERE database = {database:String} AND name = {table:String}",
		clickhouse.Named("database", a.database), clickhouse.Named("table", a.local(audit.name)))
	if err := row.Scan(&kept); err != nil || kept == wanted {
		return a.fault(ctx, "reading system.tables", err)
	}
	return a.exec(ctx, fmt.Sprintf("ALTER TABLE %s %s %s", a.local(audit.name), a.onCluster(), change))
}

// AuditSearch says which entries of the audit stream are meant; an empty text: all.
type AuditSearch struct {
	From, To                      time.Time // local days, both included
	Actor, Action, Address, Store string
	About                         string // the id of an account, a fleet or an order
	Limit                         int
}

// AuditEntries are the newest that a search finds, newest first.
func (a *Archive) AuditEntries(ctx context.Context, s AuditSearch) (found []Audit, err error) {
	where := "day BETWEEN {from:Date} AND {to:Date}"
	args := []any{clickhouse.Named("from", dateOf(s.From)), clickhouse.Named("to", dateOf(s.To)), clickhouse.Named("limit", s.Limit)}
	for _, c := range [][3]string{{"actor", s.Actor, "actor = {actor:String}"}, {"action", s.Action, "action = {action:String}"},
		{"address", s.Address, "address = {address:String}"}, {"store", s.Store, "external_store_id = {store:String}"},
		{"about", s.About, "has([toString(account_id), toString(fleet_id), toString(order_id)], {about:String})"}} {
		if c[1] != "" {
			where += " AND " + c[2]
			args = append(args, clickhouse.Named(c[0], c[1]))
		}
	}
	err = a.Each(ctx, `SELECT at, id, version, actor, credential, address, request_id, action, account_id, fleet_id, order_id, external_store_id,
	old_values, new_values, outcome FROM audit WHERE `+where+" ORDER BY at DESC, id LIMIT {limit:UInt32}", func(rows driver.Rows) error {
		var e Audit
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

// About names what an entry is about: "account 0d3c… store moda"; "-" for nothing.
func (e *Audit) About() string {
	var parts []string
	for _, part := range []struct{ kind, id string }{{"account", id(e.Account)}, {"fleet", id(e.Fleet)}, {"order", id(e.Order)}, {"store", e.Store}} {
		if part.id != "" {
			parts = append(parts, part.kind+" "+part.id)
		}
	}
	return cmp.Or(strings.Join(parts, " "), "-")
}

func id(of interface {
	fmt.Stringer
	IsZero() bool
}) string {
	if of.IsZero() {
		return ""
	}
	return of.String()
}
