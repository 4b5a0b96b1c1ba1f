package main

import (
	"testing"
	"time"

	"vendorapi/reporting/reconcile"
)

// What is compared when days are named, and when they are not: the last 8, today included.
func TestReadScope_NamesWholeDays(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	const account = "0190163d-8694-4dbd-8e88-000000000001"
	for _, c := range []struct {
		what                   string
		day, from, to, account string
		isFine                 bool
		wantFrom, wantTo       string
	}{
		{what: "nothing", isFine: true, wantFrom: "2026-11-23", wantTo: "2026-11-30"},
		{what: "a day", day: "2026-11-03", isFine: true, wantFrom: "2026-11-03", wantTo: "2026-11-03"},
		{what: "the last of several days", to: "2026-11-20", isFine: true, wantFrom: "2026-11-13", wantTo: "2026-11-20"},
		{what: "several days", from: "2026-11-01", to: "2026-11-30", isFine: true, wantFrom: "2026-11-01", wantTo: "2026-11-30"},
		{what: "the same day twice", from: "2026-11-30", to: "2026-11-30", isFine: true, wantFrom: "2026-11-30", wantTo: "2026-11-30"},
		{what: "the last before the first", from: "2026-12-01", to: "2026-11-30"},
		{what: "no day", day: "yesterday"},
		{what: "an account", account: account, isFine: true, wantFrom: "2026-11-23", wantTo: "2026-11-30"},
		{what: "no account", account: "kebap"},
	} {
		var s reconcile.Scope
		err := readScope(&s, now, c.day, c.from, c.to, c.account)

		if (err == nil) != c.isFine {
			t.Errorf("%s: %v", c.what, err)
		}

		if !c.isFine {
			continue
		}
		if from, to := s.From.Format(time.DateOnly), s.To.Format(time.DateOnly); from != c.wantFrom || to != c.wantTo {
			t.Errorf("%s: %s to %s, want %s to %s", c.what, from, to, c.wantFrom, c.wantTo)
		}
		if got := s.Account.IsZero(); got != (c.account == "") {
			t.Errorf("%s: the account is %s", c.what, s.Account)
		}
	}
}
