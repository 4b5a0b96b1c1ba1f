package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
)

func TestAudit_PrintsWhatIsAskedFor(t *testing.T) {
	t.Parallel()

	e, flags := archiveWith(t, 0)
	now, account := time.Now(), delivery.NewAccountID()
	err := e.Archive.Insert(t.Context(), &archive.Batch{Audit: []audit.Entry{
		{At: now, ID: "a", Version: 1, Actor: "ayşe", Credential: "admin key", Address: "192.0.2.1", RequestID: "00112233aabbccdd", Action: "account changed",
			Account: account, Store: "<s1>", Old: `{"name":"<A>"}`, New: `{"name":"B"}`},
		{At: now.AddDate(0, 0, -29), ID: "b", Version: 1, Address: "192.0.2.1", Action: "admin key refused", New: `{"count":2}`, Outcome: "X"},
		{At: now.AddDate(0, 0, -31), ID: "c", Version: 1, Actor: "deniz", Action: "fleet changed"},
	}})
	if err != nil {
		t.Fatal(err)
	}

	day := func(days int) string { return now.AddDate(0, 0, days).In(delivery.Istanbul).Format(time.DateOnly) }
	const changed, refused, old = "account changed", "admin key refused", "fleet changed"
	for _, c := range []struct {
		args []string
		rows string
	}{
		{nil, changed + " " + refused}, {[]string{"--from", day(-31)}, changed + " " + refused + " " + old}, {[]string{"--from", day(-31), "--to", day(-30)}, old},
		{[]string{"--actor", "ayşe"}, changed}, {[]string{"--action", refused}, refused}, {[]string{"--about", account.String()}, changed},
		{[]string{"--limit", "1"}, changed}, {[]string{"--actor", "nobody"}, ""}, {[]string{"--actor", "ayşe", "--action", refused}, ""},
	} {
		out, said, err := call(t, newAuditCommand(), "", append(c.args, flags...)...)
		var rows []string
		for line := range strings.Lines(out) {
			for _, action := range []string{changed, refused, old} {
				if strings.Contains(line, action) {
					rows = append(rows, action)
				}
			}
		}

		if err != nil || strings.Join(rows, " ") != c.rows || (said != "") != slices.Contains(c.args, "--limit") || !strings.HasPrefix(out, "TIME ") {
			t.Errorf("%s: %v, said %q, printed\n%s", c.args, err, said, out)
		}
	}

	table, _, err := call(t, newAuditCommand(), "", flags...)
	if words := strings.Join(strings.Fields(table), " "); err != nil || !strings.HasPrefix(words, "TIME ACTOR BY ADDRESS ACTION ABOUT OUTCOME REQUEST FROM TO ") ||
		!strings.Contains(words, " ayşe admin key 192.0.2.1 account changed account "+account.String()+` store <s1> done 00112233aabbccdd {"name":"<A>"} {"name":"B"} `) ||
		!strings.HasSuffix(words, ` 192.0.2.1 admin key refused X {"count":2}`) {
		t.Errorf("%v, %s", err, table)
	}
}

func TestAudit_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	bare := *e
	bare.Database = e.ClickHouse.NewDatabase(t)
	e.ClickHouse.Exec(t, "CREATE DATABASE "+bare.Database)
	for _, c := range []struct{ args, want string }{
		{"--from 2026-13-01", "--from: must be a day such as 2026-11-21"},
		{"--to today", "--to: must be a day"},
		{"--from 2026-11-02 --to 2026-11-01", "--from: is after the last day"},
		{"--about me", "--about: must be the id of an account"},
		{"--limit -1", "invalid argument"},
		{"--limit x", "invalid argument"},
		{"--colour red", "unknown flag"},
		{"ayse", "unknown command"},
		{"--config " + settingsFor(t, e, "http://127.0.0.1:9"), "clickhouse at 127.0.0.1:9"},
		{"--config " + settingsFor(t, &bare, e.ClickHouse.URL), "reporting migrate"},
	} {
		if out, _, err := call(t, newAuditCommand(), "", strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s: %v, wrote %q", c.args, err, out)
		}
	}
}
