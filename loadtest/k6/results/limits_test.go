package results

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// requestAt is a request that was sent so many milliseconds after the start and took 2 ms.
func requestAt(ms int, status int16) request {
	sent := start.Add(time.Duration(ms) * time.Millisecond)

	return requestBetween(sent, sent.Add(2*time.Millisecond), status)
}

func requestBetween(sent, answered time.Time, status int16) request {
	return request{
		answered: answered.UnixNano(),
		took:     float64(answered.Sub(sent)) / float64(time.Millisecond),
		status:   status,
	}
}

// volley is n requests, the first one so many milliseconds after the start.
func volley(n, from, interval int, status int16) []request {
	var requests []request
	for i := range n {
		requests = append(requests, requestAt(from+i*interval, status))
	}

	return requests
}

// allHeld reports whether the limits were kept, and nothing within them was refused.
func allHeld(found []limitMeasurement) bool {
	return !slices.ContainsFunc(found, func(m limitMeasurement) bool {
		return m.most > m.limit.Count || m.wronglyRefused > 0
	})
}

func TestMeasureLimits(t *testing.T) {
	t.Parallel()

	ten := []Limit{{Count: 10, Span: time.Second}}
	tenAndFive := []Limit{{Count: 10, Span: time.Second}, {Count: 5, Span: 100 * time.Millisecond}}

	for name, c := range map[string]struct {
		requests []request
		limits   []Limit
		most     int
		wrongly  int
		held     bool
	}{
		"nothing":                        {requests: nil, limits: ten, most: 0, wrongly: 0, held: true},
		"exactly the limit":              {requests: volley(10, 0, 5, 201), limits: ten, most: 10, wrongly: 0, held: true},
		"one more":                       {requests: volley(11, 0, 5, 201), limits: ten, most: 11, wrongly: 0, held: false},
		"one more after the span":        {requests: append(volley(10, 0, 5, 201), requestAt(1000, 201)), limits: ten, most: 10, wrongly: 0, held: true},
		"one more, maybe after the span": {requests: append(volley(10, 0, 5, 201), requestAt(998, 201)), limits: ten, most: 10, wrongly: 0, held: true},
		"one more, certainly within":     {requests: append(volley(10, 0, 5, 201), requestAt(990, 201)), limits: ten, most: 11, wrongly: 0, held: false},
		"refused at the limit":           {requests: append(volley(10, 0, 5, 201), requestAt(500, 429)), limits: ten, most: 10, wrongly: 0, held: true},
		"refused below the limit":        {requests: append(volley(9, 0, 5, 201), requestAt(500, 429)), limits: ten, most: 9, wrongly: 1, held: false},
		"refused, an answer was lost":    {requests: append(volley(9, 0, 5, 201), requestAt(400, 503), requestAt(500, 429)), limits: ten, most: 9, wrongly: 0, held: true},
		"refused after the span":         {requests: append(volley(10, 0, 0, 201), requestAt(1010, 429)), limits: ten, most: 10, wrongly: 1, held: false},
		"refused, maybe within the span": {requests: append(volley(10, 0, 0, 201), requestAt(1001, 429)), limits: ten, most: 10, wrongly: 0, held: true},
		"refused by another limit":       {requests: append(volley(5, 0, 10, 201), requestAt(60, 429)), limits: tenAndFive, most: 5, wrongly: 0, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := measureLimits(c.requests, c.limits, true)

			if found[0].most != c.most || found[0].wronglyRefused != c.wrongly || allHeld(found) != c.held {
				t.Errorf("found %+v, all held: %v", found, allHeld(found))
			}
		})
	}
}

// An account that was in use before may have been refused rightly while its windows reach back
// to before the run.
func TestMeasureLimits_KnowsNothingOfThePastOfUsedAccounts(t *testing.T) {
	t.Parallel()

	ten := []Limit{{Count: 10, Span: time.Second}}
	early := append(volley(3, 0, 5, 201), requestAt(500, 429))
	late := append(volley(3, 0, 5, 201), requestAt(1500, 429))

	for name, c := range map[string]struct {
		requests []request
		fresh    bool
		wrongly  int
	}{
		"fresh, early": {requests: early, fresh: true, wrongly: 1},
		"fresh, late":  {requests: late, fresh: true, wrongly: 1},
		"used, early":  {requests: early, fresh: false, wrongly: 0},
		"used, late":   {requests: late, fresh: false, wrongly: 1},

		// A request is written when it is answered, so the first line is not of the one sent first.
		"used, late, in another order": {requests: []request{late[3], late[0], late[1], late[2]}, fresh: false, wrongly: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := measureLimits(c.requests, ten, c.fresh)

			if found[0].wronglyRefused != c.wrongly {
				t.Errorf("%d were wrongly refused, want %d", found[0].wronglyRefused, c.wrongly)
			}
		})
	}
}

// Whatever a service does that counts exactly, each request at some moment between its
// bounds, it is never found guilty.
func TestMeasureLimits_IsNeverWrong(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		limit := Limit{Count: rapid.IntRange(1, 8).Draw(t, "count"), Span: 100 * time.Millisecond}
		requests := exactService(t, limit, 0)

		found := measureLimits(requests, []Limit{limit}, true)

		if !allHeld(found) {
			t.Fatalf("an exact service is found guilty: %+v", found)
		}
	})
}

// Nor is it when the account was in use before the run.
func TestMeasureLimits_IsNeverWrongAboutUsedAccounts(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		limit := Limit{Count: rapid.IntRange(1, 8).Draw(t, "count"), Span: 100 * time.Millisecond}
		earlier := rapid.IntRange(0, 40).Draw(t, "earlier")
		requests := exactService(t, limit, earlier)

		found := measureLimits(requests[min(earlier, len(requests)):], []Limit{limit}, false)

		if !allHeld(found) {
			t.Fatalf("an exact service is found guilty: %+v", found)
		}
	})
}

// exactService plays a service that counts exactly, before clients that know its moments only
// loosely. The first requests, so many as earlier says, are all answered before the next one
// is sent.
func exactService(t *rapid.T, allowed Limit, earlier int) []request {
	var requests []request
	var log []time.Time
	counted := start
	for i := range rapid.IntRange(1, 60).Draw(t, "requests") {
		if i == earlier {
			counted = counted.Add(81 * time.Millisecond)
		}

		counted = counted.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "gap")) * time.Millisecond)
		sent := counted.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "before")) * time.Millisecond)
		answered := counted.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "after")) * time.Millisecond)

		status := int16(429)
		if countWithin(log, counted, allowed.Span) < allowed.Count {
			log = append(log, counted)
			status = 201
			if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				status = 503
			}
		}

		requests = append(requests, requestBetween(sent, answered, status))
	}

	return requests
}

func countWithin(log []time.Time, now time.Time, span time.Duration) int {
	within := 0
	for _, moment := range log {
		if now.Sub(moment) < span {
			within++
		}
	}

	return within
}

// A service that allows one more, or one less, is found out when the moments are known closely
// enough.
func TestMeasureLimits_FindsOneTooManyOrTooFew(t *testing.T) {
	t.Parallel()

	limit := Limit{Count: 5, Span: 100 * time.Millisecond}

	for _, allowed := range []int{limit.Count - 1, limit.Count + 1} {
		found := measureLimits(hammer(limit, allowed), []Limit{limit}, true)

		if allHeld(found) {
			t.Errorf("a service that allows %d passes: %+v", allowed, found)
		}
	}
}

// hammer requests every 5 ms and is answered within 1 ms.
func hammer(limit Limit, allowed int) []request {
	var requests []request
	var log []time.Time
	for ms := 0; ms < 500; ms += 5 {
		counted := start.Add(time.Duration(ms) * time.Millisecond)

		status := int16(429)
		if countWithin(log, counted, limit.Span) < allowed {
			log = append(log, counted)
			status = 201
		}
		requests = append(requests, requestBetween(counted, counted.Add(time.Millisecond), status))
	}

	return requests
}

// samplesOf is samples of requests to one endpoint by one account, a millisecond apart, each
// answered at once.
func samplesOf(t *testing.T, endpoint, account string, statuses ...int16) *sampleSet {
	t.Helper()
	samples := newSamples()
	addRequests(t, samples, endpoint, account, statuses...)

	return samples
}

func addRequests(t *testing.T, samples *sampleSet, endpoint, account string, statuses ...int16) {
	t.Helper()
	endpointIndex, err := samples.index(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	accountIndex, err := samples.index(account)
	if err != nil {
		t.Fatal(err)
	}

	for i, status := range statuses {
		sent := start.Add(time.Duration(i) * time.Millisecond)
		added := requestBetween(sent, sent, status)
		added.endpoint = endpointIndex
		added.account = accountIndex
		samples.requests = append(samples.requests, added)
	}
}

func repeat(n int, status int16, more ...int16) []int16 {
	return append(slices.Repeat([]int16{status}, n), more...)
}

func TestCheckLimits(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		endpoint string
		statuses []int16
		held     bool
	}{
		"exactly the burst":           {endpoint: "POST /orders", statuses: repeat(120, 201, 429), held: true},
		"one beyond the burst":        {endpoint: "POST /orders", statuses: repeat(120, 201, 422), held: false},
		"refused within the burst":    {endpoint: "POST /orders", statuses: repeat(119, 201, 429), held: false},
		"a 5xx may have been counted": {endpoint: "POST /orders", statuses: repeat(119, 201, 503, 429), held: true},
		"and may not":                 {endpoint: "POST /orders", statuses: repeat(120, 201, 503), held: true},
		"reads of one order":          {endpoint: "GET /orders/{id}", statuses: repeat(1, 200, 429, 429), held: true},
		"too many reads":              {endpoint: "GET unknown order", statuses: repeat(3001, 404), held: false},
		"too many cancellations":      {endpoint: "POST /orders/{id}/cancel", statuses: repeat(601, 409), held: false},
		"too many stores":             {endpoint: "PUT /stores/{id}", statuses: repeat(201, 200), held: false},
		"too many tokens":             {endpoint: "POST /token", statuses: repeat(61, 200), held: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			rows := checkLimits(samplesOf(t, c.endpoint, "1", c.statuses...), nil, true)

			allRowsHeld := !slices.ContainsFunc(rows, func(r LimitRow) bool { return !r.Held })
			if len(rows) == 0 || allRowsHeld != c.held {
				t.Errorf("rows: %+v", rows)
			}
		})
	}
}

func TestCheckLimits_CountsOnlyTheAPI(t *testing.T) {
	t.Parallel()

	empty := samplesOf(t, emptyPath, "1", repeat(4000, 404)...)
	unowned := samplesOf(t, createOrder, "", repeat(4000, 201)...)

	ofEmpty := checkLimits(empty, nil, true)
	ofUnowned := checkLimits(unowned, nil, true)

	if ofEmpty != nil {
		t.Errorf("the empty path has limits: %+v", ofEmpty)
	}
	if ofUnowned != nil {
		t.Errorf("requests without an account have limits: %+v", ofUnowned)
	}
}

// Accounts with raised limits have separate rows.
func TestCheckLimits_ByAccount(t *testing.T) {
	t.Parallel()

	raised := ContractLimits()
	raised.Orders.Burst = Limit{Count: 1200, Span: 10 * time.Second}
	samples := samplesOf(t, createOrder, "1", repeat(119, 201, 429)...)
	addRequests(t, samples, createOrder, "2", repeat(500, 201)...)
	addRequests(t, samples, createOrder, "3", repeat(5, 201)...)

	rows := checkLimits(samples, map[string]Limits{"2": raised}, true)

	if len(rows) != 3 {
		t.Fatalf("rows: %+v", rows)
	}

	sustained, burst, raisedBurst := rows[0], rows[1], rows[2]
	if sustained.Limit() != "600 in 60 s" || sustained.Accounts != 3 || sustained.Admitted != 624 || sustained.Most != 500 {
		t.Errorf("sustained: %+v", sustained)
	}
	if burst.Limit() != "120 in 10 s" || burst.Refused != 1 || burst.Most != 119 || *burst.WronglyRefused != 1 || burst.Held {
		t.Errorf("burst: %+v", burst)
	}
	if raisedBurst.Limit() != "1200 in 10 s" || raisedBurst.Most != 500 || !raisedBurst.Held {
		t.Errorf("raised burst: %+v", raisedBurst)
	}
}

// Limits of the same count over another span are other limits.
func TestCheckLimits_KeepsSpansApart(t *testing.T) {
	t.Parallel()

	slower := ContractLimits()
	slower.Cancel.Span = time.Hour
	samples := samplesOf(t, "POST /orders/{id}/cancel", "1", 200)
	addRequests(t, samples, "POST /orders/{id}/cancel", "2", 200)

	rows := checkLimits(samples, map[string]Limits{"2": slower}, true)

	if len(rows) != 2 || rows[0].Limit() != "600 in 60 s" || rows[1].Limit() != "600 in 3600 s" {
		t.Errorf("rows: %+v", rows)
	}
}

// An account without raised limits has the contract's (spec, "Limits").
func TestCheckLimits_OfTheContract(t *testing.T) {
	t.Parallel()

	for endpoint, c := range map[string]struct {
		limits    []string
		exclusive bool
	}{
		"POST /orders":             {limits: []string{"600 in 60 s", "120 in 10 s"}, exclusive: true},
		"POST /orders/{id}/cancel": {limits: []string{"600 in 60 s"}, exclusive: true},
		"GET /orders/{id}":         {limits: []string{"3000 in 60 s"}, exclusive: false},
		"PUT /stores/{id}":         {limits: []string{"200 in 10 s"}, exclusive: false},
		"POST /token":              {limits: []string{"60 in 3600 s"}, exclusive: true},
	} {
		rows := checkLimits(samplesOf(t, endpoint, "1", 200), nil, true)

		var limits []string
		for i := range rows {
			limits = append(limits, rows[i].Limit())
			isKnown := rows[i].WronglyRefused != nil
			if isKnown != c.exclusive {
				t.Errorf("%s: wrongly refused: %v", endpoint, rows[i].WronglyRefused)
			}
		}

		if !slices.Equal(limits, c.limits) {
			t.Errorf("%s: limits %q", endpoint, limits)
		}
	}
}

func TestRequest_Admitted(t *testing.T) {
	t.Parallel()

	certain := []int16{200, 201, 204, 400, 404, 409, 422, 423}
	uncertain := []int16{0, 401, 403, 413, 429, 500, 502, 503, 504}

	for _, status := range append(certain, uncertain...) {
		r := request{status: status}
		if r.admitted() != slices.Contains(certain, status) {
			t.Errorf("%d: %v", status, r.admitted())
		}
	}
}

// In 1,000 s the clocks of vendor and service may run apart by one second.
func TestMeasureLimits_AllowsForClocksThatRunApart(t *testing.T) {
	t.Parallel()

	limit := Limit{Count: 10, Span: 1000 * time.Second}

	for name, c := range map[string]struct {
		last    request
		most    int
		wrongly int
	}{
		"one more, maybe after the span": {last: requestAt(999_100, 201), most: 10, wrongly: 0},
		"one more, certainly within":     {last: requestAt(998_900, 201), most: 11, wrongly: 0},
		"refused, maybe within the span": {last: requestAt(1_000_900, 429), most: 10, wrongly: 0},
		"refused, certainly after it":    {last: requestAt(1_001_100, 429), most: 10, wrongly: 1},
	} {
		found := measureLimits(append(volley(10, 0, 0, 201), c.last), []Limit{limit}, true)[0]

		if found.most != c.most || found.wronglyRefused != c.wrongly {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
