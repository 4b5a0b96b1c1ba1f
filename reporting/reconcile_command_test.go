package main

import (
	"testing"
	"time"

	"vendorapi/reporting/archive"
	"vendorapi/reporting/reconcile"
)

// What is compared when days are named, and when they are not: the last 8, today included.
func TestReadScope_NamesWholeDays(t *testing.T) {
	t.Parallel()
	today := archive.BusinessDay(time.Now())
	const account = "0190163d-8694-4dbd-8e88-000000000001"
	for _, c := range []struct {
		what                   string
		day, from, to, account string
		isFine                 bool
		wantFrom, wantTo       string // empty: as many days before today as it says
		days                   int
	}{
		{what: "nothing", isFine: true, days: 8},
		{what: "a day", day: "2026-11-03", isFine: true, wantFrom: "2026-11-03", wantTo: "2026-11-03"},
		{what: "the last of several days", to: "2026-11-30", isFine: true, wantFrom: "2026-11-23", wantTo: "2026-11-30"},
		{what: "several days", from: "2026-11-01", to: "2026-11-30", isFine: true, wantFrom: "2026-11-01", wantTo: "2026-11-30"},
		{what: "the same day twice", from: "2026-11-30", to: "2026-11-30", isFine: true, wantFrom: "2026-11-30", wantTo: "2026-11-30"},
		{what: "the last before the first", from: "2026-12-01", to: "2026-11-30"},
		{what: "no day", day: "yesterday"},
		{what: "an account", account: account, isFine: true, days: 8},
		{what: "no account", account: "kebap"},
	} {
		var s reconcile.Scope
		err := readScope(&s, c.day, c.from, c.to, c.account)

		if (err == nil) != c.isFine {
			t.Errorf("%s: %v", c.what, err)
		}
		if !c.isFine {
			continue
		}
		if c.days > 0 {
			c.wantTo = today.Format(time.DateOnly)
			c.wantFrom = today.AddDate(0, 0, 1-c.days).Format(time.DateOnly)
		}
		if from, to := s.From.Format(time.DateOnly), s.To.Format(time.DateOnly); from != c.wantFrom || to != c.wantTo {
			t.Errorf("%s: %s to %s, want %s to %s", c.what, from, to, c.wantFrom, c.wantTo)
		}
		if got := s.Account.IsZero(); got != (c.account == "") {
			t.Errorf("%s: the account is %s", c.what, s.Account)
		}
	}
}
