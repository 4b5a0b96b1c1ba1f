//go:build long

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is a request that took 2 ms.
func at(ms, status int) request {
	sent := start.Add(time.Duration(ms) * time.Millisecond)
	return request{sent: sent, answered: sent.Add(2 * time.Millisecond), status: status}
}

func volley(n, from, step, status int) (requests []request) {
	for i := range n {
		requests = append(requests, at(from+i*step, status))
	}
	return requests
}

// hold reports whether the limits were kept, and nothing within them refused.
func hold(rows []limitRow, limits []limit) bool {
	for i, l := range limits {
		if rows[i].Most > l.count || rows[i].Wronged > 0 {
			return false
		}
	}
	return true
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	ten := []limit{{10, time.Second}}
	for name, c := range map[string]struct {
		requests []request
		limits   []limit
		most     int
		wronged  int
		holds    bool
	}{
		"nothing":                        {nil, ten, 0, 0, true},
		"exactly the limit":              {volley(10, 0, 5, 201), ten, 10, 0, true},
		"one more":                       {volley(11, 0, 5, 201), ten, 11, 0, false},
		"one more after the span":        {append(volley(10, 0, 5, 201), at(1000, 201)), ten, 10, 0, true},
		"one more, maybe after the span": {append(volley(10, 0, 5, 201), at(998, 201)), ten, 10, 0, true},
		"one more, certainly within":     {append(volley(10, 0, 5, 201), at(990, 201)), ten, 11, 0, false},
		"refused at the limit":           {append(volley(10, 0, 5, 201), at(500, 429)), ten, 10, 0, true},
		"refused below the limit":        {append(volley(9, 0, 5, 201), at(500, 429)), ten, 9, 1, false},
		"refused, an answer was lost":    {append(volley(9, 0, 5, 201), at(400, 503), at(500, 429)), ten, 9, 0, true},
		"refused after the span":         {append(volley(10, 0, 0, 201), at(1010, 429)), ten, 10, 1, false},
		"refused, maybe within the span": {append(volley(10, 0, 0, 201), at(1001, 429)), ten, 10, 0, true},
		"refused by another window": {append(volley(5, 0, 10, 201), at(60, 429)),
			[]limit{{10, time.Second}, {5, 100 * time.Millisecond}}, 5, 0, true},
	} {
		v := measure(c.requests, c.limits)
		if v[0].Most != c.most || v[0].Wronged != c.wronged || hold(v, c.limits) != c.holds {
			t.Errorf("%s: %+v, holds %v", name, v, hold(v, c.limits))
		}
	}
}

// Whatever a service does that counts exactly, each request at some moment
// between its bounds, it is never found guilty.
func TestMeasure_IsNeverWrong(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := limit{rapid.IntRange(1, 8).Draw(t, "count"), 100 * time.Millisecond}
		if v := measure(serve(t, l), []limit{l}); !hold(v, []limit{l}) {
			t.Fatalf("an exact service is found guilty: %+v", v)
		}
	})
}

// serve plays a service with an exact log, before an outside that knows the
// moments only loosely.
func serve(t *rapid.T, allowed limit) (requests []request) {
	counted := start
	var log []time.Time
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		counted = counted.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "gap")) * time.Millisecond)
		r := request{
			sent:     counted.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "before")) * time.Millisecond),
			answered: counted.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "after")) * time.Millisecond),
			status:   429,
		}
		within := 0
		for _, l := range log {
			if counted.Sub(l) < allowed.span {
				within++
			}
		}
		if within < allowed.count {
			log = append(log, counted)
			r.status = 201
			if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				r.status = 503
			}
		}
		requests = append(requests, r)
	}
	return requests
}

// One that allows one more, or one less, is found out when the moments are known
// closely enough.
func TestMeasure_FindsOutOneTooManyOrTooFew(t *testing.T) {
	t.Parallel()
	l := limit{5, 100 * time.Millisecond}
	for _, allowed := range []int{l.count - 1, l.count + 1} {
		requests := hammer(l, allowed)
		if v := measure(requests, []limit{l}); hold(v, []limit{l}) {
			t.Errorf("a service that allows %d passes: %+v", allowed, v)
		}
	}
}

// hammer asks every 5 ms and is answered within 1 ms.
func hammer(l limit, allowed int) (requests []request) {
	var log []time.Time
	for ms := 0; ms < 500; ms += 5 {
		counted := start.Add(time.Duration(ms) * time.Millisecond)
		r := request{sent: counted, answered: counted.Add(time.Millisecond), status: 429}
		within := 0
		for _, earlier := range log {
			if counted.Sub(earlier) < l.span {
				within++
			}
		}
		if within < allowed {
			log, r.status = append(log, counted), 201
		}
		requests = append(requests, r)
	}
	return requests
}

// The scripts measure by the same rules, where node is installed to run them.
func TestMeasure_AgreesWithTheScripts(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("node is not installed here: lib/window.js was not run")
		return
	}
	source, err := os.ReadFile(filepath.Join("..", "lib", "window.js"))
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(t.TempDir(), "window.mjs")
	if err := os.WriteFile(module, source, 0o600); err != nil {
		t.Fatal(err)
	}
	l := limit{5, 100 * time.Millisecond}
	for allowed := 3; allowed <= 7; allowed++ {
		requests := hammer(l, allowed)
		var log []map[string]any
		for _, r := range requests {
			log = append(log, map[string]any{"sent": r.sent.UnixMilli(), "answered": r.answered.UnixMilli(), "admitted": r.status == 201})
		}
		input, err := json.Marshal([]any{log, []any{map[string]any{"count": l.count, "seconds": l.span.Seconds()}}})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e",
			`const { measure } = await import(process.argv[1]);
			 let text = ''; for await (const part of process.stdin) text += part;
			 console.log(JSON.stringify(measure(...JSON.parse(text))));`, module)
		cmd.Stdin = bytes.NewReader(input)
		said, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Most            []int
			Beyond, Wronged int
		}
		if err := json.Unmarshal(said, &got); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if v := measure(requests, []limit{l}); got.Most[0] != v[0].Most || got.Wronged != v[0].Wronged || (got.Beyond > 0) != (v[0].Most > l.count) {
			t.Errorf("%d allowed: the script says %+v, measure %+v", allowed, got, v)
		}
	}
}

func TestScript_RaisesLimitsByItsFactor(t *testing.T) {
	t.Parallel()
	plain, raised := script{factor: 1}, script{factor: 10}
	if plain.limits() != nil {
		t.Errorf("the contract's limits are written out: %v", plain.limits())
	}
	if text, err := json.Marshal(raised.limits()); err != nil || !strings.Contains(string(text), `"burst":{"count":1200,"seconds":10}`) {
		t.Errorf("%s, %v", text, err)
	}
	if got := raised.buckets()[0].limits; got[0].count != 6000 || got[1].count != 1200 {
		t.Errorf("%v", got)
	}
}

// run of requests to one endpoint, a millisecond apart, each answered at once.
func ofOneAccount(endpoint string, statuses ...int) (requests []request) {
	at := time.UnixMicro(1795284932714757)
	for _, status := range statuses {
		at = at.Add(time.Millisecond)
		requests = append(requests, request{endpoint: endpoint, account: "1", status: status, sent: at, answered: at})
	}
	return requests
}

func times(n, status int) (list []int) { return slices.Repeat([]int{status}, n) }

func TestCheckLimits(t *testing.T) {
	t.Parallel()
	s := &script{factor: 1}
	for name, c := range map[string]struct {
		run  []request
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
		rows := checkLimits(s, c.run)
		held := len(rows) > 0
		for _, r := range rows {
			held = held && r.Held
		}
		if held != c.held {
			t.Errorf("%s: %+v", name, rows)
		}
	}
	if rows := checkLimits(s, nil); rows != nil {
		t.Errorf("limits of nothing: %+v", rows)
	}
	run := ofOneAccount("POST /orders", append(times(119, 201), 429)...)
	row := checkLimits(s, run)[1]
	if row.Limit.String() != "120 in 10 s" || row.Admitted != 119 || row.Refused != 1 || row.Most != 119 || row.Wronged != 1 || row.Accounts != 1 {
		t.Errorf("%+v", row)
	}
}
