//go:build long

package main

import (
	"slices"
	"testing"
	"time"

	"vendorapi/loadtest/k6/samples"
)

func TestScript_RaisesLimitsByItsFactor(t *testing.T) {
	t.Parallel()
	plain, raised := script{factor: 1}, script{factor: 10}
	if plain.limits() != nil {
		t.Errorf("the contract's limits are written out: %v", plain.limits())
	}
	orders, _ := raised.limits()["orders"].(map[string]any)
	burst, _ := orders["burst"].(map[string]int)
	if burst["count"] != 1200 || burst["seconds"] != 10 {
		t.Errorf("%v", raised.limits())
	}
	if got := raised.buckets()[0].limits; got[0].Count != 6000 || got[1].Count != 1200 || ordersBurst.Count != 120 {
		t.Errorf("%v", got)
	}
}

// run of requests to one endpoint, a millisecond apart, each answered at once.
func ofOneAccount(endpoint string, statuses ...int) (run samples.Run) {
	at := time.UnixMicro(1795284932714757)
	for _, status := range statuses {
		at = at.Add(time.Millisecond)
		run.Requests = append(run.Requests, samples.Request{Endpoint: endpoint, Account: "1", Status: status, Sent: at, Answered: at})
	}
	return run
}

func times(n, status int) (list []int) { return slices.Repeat([]int{status}, n) }

func TestJudgeLimits(t *testing.T) {
	t.Parallel()
	s := &script{factor: 1}
	for name, c := range map[string]struct {
		run  samples.Run
		held bool
	}{
		"exactly the burst":           {ofOneAccount("POST /orders", append(times(120, 201), 429)...), true},
		"one beyond the burst":        {ofOneAccount("POST /orders", append(times(120, 201), 422)...), false},
		"refused within the burst":    {ofOneAccount("POST /orders", append(times(119, 201), 429)...), false},
		"a 5xx may have been counted": {ofOneAccount("POST /orders", append(times(119, 201), 503, 429)...), true},
		"and may not":                 {ofOneAccount("POST /orders", append(times(120, 201), 503)...), true},
		"reads of one order":          {ofOneAccount("GET /orders/{id}", 200, 429, 429), true},
		"too many reads":              {ofOneAccount("GET unknown order", times(3001, 404)...), false},
		"too many cancellations":      {ofOneAccount("POST /orders/{id}/cancel", times(601, 409)...), false},
		"too many tokens":             {ofOneAccount("POST /token", times(61, 200)...), false},
	} {
		rows := judgeLimits(s, &c.run)
		held := len(rows) > 0
		for _, r := range rows {
			held = held && r.Held
		}
		if held != c.held {
			t.Errorf("%s: %+v", name, rows)
		}
	}
	if rows := judgeLimits(s, &samples.Run{}); rows != nil {
		t.Errorf("limits of nothing: %+v", rows)
	}
	run := ofOneAccount("POST /orders", append(times(119, 201), 429)...)
	row := judgeLimits(s, &run)[1]
	if row.Limit != "120 in 10 s" || row.Admitted != 119 || row.Refused != 1 || row.Most != 119 || row.Wronged != 1 || row.Accounts != 1 {
		t.Errorf("%+v", row)
	}
}
