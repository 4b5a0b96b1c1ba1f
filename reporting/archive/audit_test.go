package archive

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func auditOf(id string, version int, at time.Time) Audit {
	return Audit{At: at, ID: id, Version: version, Actor: "ayşe", Credential: "admin key", Address: "192.0.2.1", RequestID: "00112233aabbccdd",
		Action: "account changed", Account: account(1), Store: "moda", Old: `{"a":"ğ"}`, New: `{"a":2}`}
}

// Of one entry the highest version counts, in whatever order and however often they are stored.
func TestAudit_OneRowForAnEntryWhateverIsRepeated(t *testing.T) {
	t.Parallel()
	first, second := auditOf("X", 1, noon), auditOf("X", 2, noon)
	second.Outcome = "ACCOUNT_NOT_FOUND"
	for name, order := range map[string][][]Audit{
		"in order": {{first}, {second}}, "backwards": {{second}, {first}}, "together, twice": {{first, second}, {second, first}},
		"again and again": {{first}, {first}, {second}, {first}, {first, first}},
	} {
		a := newArchive(t)
		for _, rows := range order {
			noError(t, a.Insert(t.Context(), &Batch{Audit: rows}))
		}
		found, err := a.AuditEntries(t.Context(), AuditSearch{From: noon, To: noon, Limit: 10})
		noError(t, err)
		for i := range found {
			found[i].At = found[i].At.In(noon.Location())
		}
		if !reflect.DeepEqual(found, []Audit{second}) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestAudit_SearchFindsWhatIsAskedForNewestFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	at := func(n int) time.Time { return noon.AddDate(0, 0, n) }
	fleet, order := delivery.FleetID{7}, delivery.OrderID{8}
	rows := []Audit{auditOf("0", 1, at(0)), auditOf("1", 1, at(1)), auditOf("2", 1, at(2)), auditOf("3", 1, at(3)), auditOf("4", 1, at(3).Add(time.Second))}
	rows[1].Actor, rows[2].Action, rows[3].Fleet, rows[3].Account, rows[4].Order, rows[4].Store = "deniz", "recipient viewed", fleet, delivery.AccountID{}, order, ""
	rows[1].Address = "2001:db8::/64"
	noError(t, a.Insert(t.Context(), &Batch{Audit: rows}))
	for want, s := range map[string]AuditSearch{
		"43210": {}, "43": {Limit: 2}, "4320": {Actor: "ayşe"}, "1": {Actor: "deniz"}, "2": {Action: "recipient viewed"}, "3": {About: fleet.String()},
		"4": {About: order.String()}, "4210": {About: account(1).String()}, "3210": {Store: "moda"}, "10": {To: at(1)}, "432": {From: at(2)},
		"1 ": {Address: "2001:db8::/64"}, "": {Actor: "' OR 1 = 1 --"}, " ": {Action: "account changed", Actor: "deniz", Store: "x"},
		"  ": {About: order.String(), Actor: "deniz"},
	} {
		if s.From.IsZero() {
			s.From = at(0)
		}
		if s.To.IsZero() {
			s.To = at(3)
		}
		if s.Limit == 0 {
			s.Limit = 10
		}
		found, err := a.AuditEntries(t.Context(), s)
		noError(t, err)
		var ids strings.Builder
		for _, one := range found {
			ids.WriteString(one.ID)
		}
		if ids.String() != strings.TrimSpace(want) {
			t.Errorf("%+v: %q, want %q", s, ids.String(), want)
		}
	}
}

func TestAudit_IsKeptAsLongAsIsSaid(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	count := func() uint64 { return one[uint64](t, a, "SELECT count() FROM audit FINAL") }
	now := time.Now()
	fill := func() {
		noError(t, a.InsertAgain(t.Context(), &Batch{Audit: []Audit{auditOf("old", 1, now.AddDate(0, 0, -40)), auditOf("new", 1, now)}}))
	}
	for _, c := range []struct {
		days int
		left uint64
	}{{0, 2}, {90, 2}, {30, 1}, {30, 1}, {0, 2}, {730, 2}} {
		noError(t, a.KeepAudit(t.Context(), c.days))
		fill()
		noError(t, a.exec(t.Context(), "OPTIMIZE TABLE audit FINAL"))
		if n := count(); n != c.left {
			t.Errorf("kept for %d days: %d rows, want %d", c.days, n, c.left)
		}
	}
	before := one[string](t, a, "SELECT toString(metadata_modification_time) || engine_full FROM system.tables WHERE database = currentDatabase() AND name = 'audit'")
	noError(t, a.KeepAudit(t.Context(), 730))
	if after := one[string](t, a, "SELECT toString(metadata_modification_time) || engine_full FROM system.tables WHERE database = currentDatabase() AND name = 'audit'"); after != before ||
		!strings.Contains(after, "TTL day + toIntervalDay(730)") {
		t.Errorf("before %s, after %s", before, after)
	}
}
