package main

import (
	"fmt"
	"time"

	"vendorapi/loadtest/k6/report"
	"vendorapi/loadtest/k6/samples"
	"vendorapi/loadtest/k6/window"
)

// limitRow is one limit, seen from outside over all of a script's accounts.
type limitRow struct {
	Bucket   string
	Limit    string // such as "120 in 10 s"
	Accounts int    // that sent anything
	Admitted int
	Refused  int
	Most     int // certainly admitted within the span, of the account with the most
	Wronged  int // refused although there was room; -1: cannot be told
	Held     bool
}

// judgeLimits holds every account's requests against the limits of every bucket.
func judgeLimits(s *script, run *samples.Run) []limitRow {
	requests := map[string]map[string][]window.Request{} // by bucket and account
	for i := range run.Requests {
		r := &run.Requests[i]
		name := bucketOf(r.Endpoint)
		if requests[name] == nil {
			requests[name] = map[string][]window.Request{}
		}
		requests[name][r.Account] = append(requests[name][r.Account],
			window.Request{Sent: r.Sent, Answered: r.Answered, Outcome: outcome(r.Status)})
	}
	var rows []limitRow
	for _, b := range s.buckets() {
		if accounts := requests[b.name]; len(accounts) > 0 {
			rows = append(rows, judgeBucket(b, accounts)...)
		}
	}
	return rows
}

func judgeBucket(b bucket, accounts map[string][]window.Request) []limitRow {
	rows := make([]limitRow, len(b.limits))
	for i, l := range b.limits {
		rows[i] = limitRow{
			Bucket: b.name, Accounts: len(accounts), Held: true,
			Limit: report.Grouped(l.Count) + " in " + span(l.Span),
		}
		if !b.alone {
			rows[i].Wronged = -1
		}
	}
	for _, requests := range accounts {
		v := window.Judge(requests, b.limits)
		for i, l := range b.limits {
			row := &rows[i]
			row.Admitted += v.Admitted
			row.Refused += v.Refused
			row.Most = max(row.Most, v.Most[i])
			row.Held = row.Held && v.Most[i] <= l.Count
			if b.alone {
				row.Wronged += v.Wronged
				row.Held = row.Held && v.Wronged == 0
			}
		}
	}
	return rows
}

func span(d time.Duration) string {
	if d == time.Hour {
		return "1 h"
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// outcome says whether a request was counted. The service counts what it
// answers with a decision; of a lost answer, a 5xx or a refusal before the
// account is known nobody outside can tell.
func outcome(status int) window.Outcome {
	switch {
	case status == 429:
		return window.Refused
	case status >= 200 && status < 300, status == 400, status == 404, status == 409, status == 422, status == 423:
		return window.Admitted
	}
	return window.Unknown
}
