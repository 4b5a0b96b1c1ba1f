package archive

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
)

func auditOf(id string, version int, at time.Time) audit.Entry {
	return audit.Entry{At: at, ID: id, Version: version, Actor: "ayşe", Credential: "admin key", Address: "192.0.2.1", RequestID: "00112233aabbccdd",
		Action: "account changed", Account: account(1), Store: "moda", Old: `{"a":"ğ"}`, New: `{"a":2}`}
}

// Of one entry the highest version counts, in whatever order and however often they are stored.
func TestAudit_OneRowForAnEntryWhateverIsRepeated(t *testing.T) {
	t.Parallel()

	first, second := auditOf("X", 1, noon), auditOf("X", 2, noon)
	second.Outcome = "ACCOUNT_NOT_FOUND"
	for name, order := range map[string][][]audit.Entry{
		"in order": {{first}, {second}}, "backwards": {{second}, {first}}, "together, twice": {{first, second}, {second, first}},
		"again and again": {{first}, {first}, {second}, {first}, {first, first}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArchive(t)
			for _, rows := range order {
				noError(t, a.Insert(t.Context(), &Batch{Audit: rows}))
			}

			found, err := a.AuditEntries(t.Context(), url.Values{"from": {dateOf(noon)}}, 10)

			noError(t, err)
			for i := range found {
				found[i].At = found[i].At.In(noon.Location())
			}

			if !reflect.DeepEqual(found, []audit.Entry{second}) {
				t.Errorf("%+v", found)
			}
		})
	}
}

func TestAudit_SearchFindsWhatIsAskedForNewestFirst(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	at := func(n int) time.Time { return noon.AddDate(0, 0, n) }
	fleet, order := delivery.FleetID{7}, delivery.OrderID{8}
	rows := []audit.Entry{auditOf("0", 1, at(0)), auditOf("1", 1, at(1)), auditOf("2", 1, at(2)), auditOf("3", 1, at(3)), auditOf("4", 1, at(3).Add(time.Second))}
	rows[1].Actor, rows[2].Action, rows[3].Fleet, rows[3].Account, rows[4].Order, rows[4].Store = "deniz", "recipient viewed", fleet, delivery.AccountID{}, order, ""
	noError(t, a.Insert(t.Context(), &Batch{Audit: rows}))
	all := "from=" + dateOf(at(0)) + "&to=" + dateOf(at(3))
	for _, c := range []struct {
		search string
		limit  int
		want   string
	}{
		{all, 10, "43210"}, {all, 2, "43"}, {all + "&actor=ayşe", 10, "4320"}, {all + "&actor=deniz", 10, "1"}, {all + "&action=recipient+viewed", 10, "2"},
		{all + "&about=" + fleet.String(), 10, "3"}, {all + "&about=" + order.String(), 10, "4"}, {all + "&about=" + account(1).String(), 10, "4210"},
		{"to=" + dateOf(at(1)), 10, "10"}, {"from=" + dateOf(at(2)), 10, "432"}, {"from=" + dateOf(at(4)), 10, ""}, {all + "&actor=%27+OR+1+%3D+1+--", 10, ""},
		{all + "&action=recipient+viewed&actor=deniz", 10, ""},
	} {
		s, err := url.ParseQuery(c.search)
		noError(t, err)
		found, err := a.AuditEntries(t.Context(), s, c.limit)
		noError(t, err)
		var ids strings.Builder
		for _, one := range found {
			ids.WriteString(one.ID)
		}

		if ids.String() != c.want {
			t.Errorf("%s: %q, want %q", c.search, ids.String(), c.want)
		}
	}
}

func TestAuditSearch_IsCompletedOrRefused(t *testing.T) {
	t.Parallel()

	id := account(1).String()
	for _, c := range []struct{ search, want string }{
		{"", "from=2026-10-23&to=2026-11-21"}, {"to=2026-11-02", "from=2026-10-04&to=2026-11-02"}, {"from=2026-11-02&actor=x", "actor=x&from=2026-11-02&to=2026-11-21"},
		{"about=" + id, "about=" + id + "&from=2026-10-23&to=2026-11-21"},
		{"from=x", "from must be a day"}, {"to=2026-13-01", "to must be a day"}, {"to=1969-01-01", "to must be a day"}, {"from=9999-01-01", "from must be a day"},
		{"from=2026-11-22", "from is after the last day"}, {"about=me", "about must be the id"}, {"about=" + strings.ToUpper(id), "about=" + id + "&from=2026-10-23&to=2026-11-21"},
		{"from=x&about=y", "from must be a day"},
	} {
		s, err := url.ParseQuery(c.search)
		noError(t, err)
		wrong := AuditSearch(s, noon)
		if len(wrong) == 0 && s.Encode() != c.want || len(wrong) > 0 && !strings.HasPrefix(wrong[0].Field+" "+wrong[0].Message, c.want) {
			t.Errorf("%s: %s, %v, want %s", c.search, s.Encode(), wrong, c.want)
		}
	}
}

func TestAudit_IsKeptAsLongAsIsSaid(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	decisions := "action IN ('" + strings.Join(Decisions, "', '") + "')"
	count := func() uint64 { return one[uint64](t, a, "SELECT count() FROM audit FINAL WHERE NOT "+decisions) }
	now := time.Now()
	fill := func() {
		entries := []audit.Entry{auditOf("old", 1, now.AddDate(0, 0, -40)), auditOf("new", 1, now)}
		for _, action := range Decisions {
			decision := auditOf(action, 1, now.AddDate(-9, 0, 0))
			decision.Action = action
			entries = append(entries, decision)
		}
		noError(t, a.InsertAgain(t.Context(), &Batch{Audit: entries}))
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
		if n := one[uint64](t, a, "SELECT count() FROM audit FINAL WHERE "+decisions); n != uint64(len(Decisions)) {
			t.Errorf("kept for %d days: %d decisions about the books, want %d", c.days, n, len(Decisions))
		}
	}

	before := one[string](t, a, "SELECT toString(metadata_modification_time) || engine_full FROM system.tables WHERE database = currentDatabase() AND name = 'audit'")
	noError(t, a.KeepAudit(t.Context(), 730))
	if after := one[string](t, a, "SELECT toString(metadata_modification_time) || engine_full FROM system.tables WHERE database = currentDatabase() AND name = 'audit'"); after != before ||
		!strings.Contains(after, "TTL day + toIntervalDay(730) WHERE action NOT IN ('corrections booked', 'month closed'") {
		t.Errorf("before %s, after %s", before, after)
	}
}
