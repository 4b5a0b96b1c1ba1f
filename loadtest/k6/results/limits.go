package results

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limit is "at most Count requests in any span of time". All limits of an account hold
// together: a request is admitted when each of them allows it.
type Limit struct {
	Count int
	Span  time.Duration
}

// String returns a text such as "120 in 10 s".
func (l Limit) String() string { return fmt.Sprintf("%d in %g s", l.Count, l.Span.Seconds()) }

// Limits are the limits of one account, for the endpoints whose requests are checked.
type Limits struct {
	Orders struct{ Sustained, Burst Limit }

	Cancel, OrderStatus, Stores, Token Limit
}

// ContractLimits returns the limits of an account that has no others (spec, "Limits").
func ContractLimits() Limits {
	limits := Limits{
		Cancel:      Limit{Count: 600, Span: time.Minute},
		OrderStatus: Limit{Count: 3000, Span: time.Minute},
		Stores:      Limit{Count: 200, Span: 10 * time.Second},
		Token:       Limit{Count: 60, Span: time.Hour},
	}

	limits.Orders.Sustained = Limit{Count: 600, Span: time.Minute}
	limits.Orders.Burst = Limit{Count: 120, Span: 10 * time.Second}

	return limits
}

// LimitRow is what is certain about one limit, over all accounts that have it.
type LimitRow struct {
	Bucket  string  `json:"bucket"`
	Count   int     `json:"count"`        // the limit: so many requests
	Seconds float64 `json:"seconds"`      // in so many seconds
	Most    int     `json:"most_counted"` // certainly admitted in such a span, of the account with the most

	Accounts int `json:"accounts"` // accounts that sent anything
	Admitted int `json:"admitted"` // requests that were certainly counted
	Refused  int `json:"refused"`  // requests that were answered 429

	// WronglyRefused counts the refusals for which every limit had room. It is null where
	// something else than these limits may have refused, so that nothing is certain.
	WronglyRefused *int `json:"wrongly_refused"`

	Held bool `json:"held"`
}

// Limit returns a text such as "120 in 10 s".
func (r *LimitRow) Limit() string { return fmt.Sprintf("%d in %g s", r.Count, r.Seconds) }

// The limits are checked from outside. A vendor does not know when the service counted a
// request, only that it was between sending it and having the answer. So only what is certain
// from these two moments is claimed. loadtest/lib/window.js does the same inside a script.

// clockDrift is the part by which the clocks of the vendor and of the service may run apart:
// NTP slews each of them by at most 500 ppm.
const clockDrift = 0.001

// bucket is a group of requests that an account's limits count together.
type bucket struct {
	name   string
	limits func(Limits) []Limit

	// exclusive says that only the limits of this bucket can have refused a request. Where another
	// limit may have, it cannot be checked whether a refusal was right.
	exclusive bool
}

// buckets are the endpoints that have limits.
var buckets = []bucket{
	{
		name:      createOrder,
		limits:    func(l Limits) []Limit { return []Limit{l.Orders.Sustained, l.Orders.Burst} },
		exclusive: true,
	},
	{
		name:      "POST /orders/{id}/cancel",
		limits:    func(l Limits) []Limit { return []Limit{l.Cancel} },
		exclusive: true,
	},
	{
		name:      "GET /orders/{id}", // each order has an additional limit
		limits:    func(l Limits) []Limit { return []Limit{l.OrderStatus} },
		exclusive: false,
	},
	{
		name:      "PUT /stores/{id}", // a sustained rate refuses, too
		limits:    func(l Limits) []Limit { return []Limit{l.Stores} },
		exclusive: false,
	},
	{
		name:      "POST /token",
		limits:    func(l Limits) []Limit { return []Limit{l.Token} },
		exclusive: true,
	},
}

// counts reports whether the bucket counts the requests to an endpoint. All reads count as
// reads of an order, whatever the script calls them.
func (b *bucket) counts(endpoint string) bool {
	if endpoint == emptyPath {
		return false
	}

	areBothReads := strings.HasPrefix(endpoint, "GET ") && strings.HasPrefix(b.name, "GET ")

	return endpoint == b.name || areBothReads
}

// checkLimits compares the requests of every account with its limits. Accounts that limitsOf
// does not name have the contract's. freshAccounts says that the accounts had sent nothing
// before the run.
func checkLimits(s *sampleSet, limitsOf map[string]Limits, freshAccounts bool) []LimitRow {
	var rows []LimitRow
	for i := range buckets {
		bucketRows := checkBucket(s, &buckets[i], limitsOf, freshAccounts)
		rows = append(rows, bucketRows...)
	}

	return rows
}

// checkBucket returns a row for each limit that the accounts have in the bucket.
func checkBucket(s *sampleSet, b *bucket, limitsOf map[string]Limits, freshAccounts bool) []LimitRow {
	table := &limitTable{bucket: b}
	byAccount := s.requestsByAccount(b)
	for _, account := range sortedKeys(byAccount) {
		limits, found := limitsOf[account]
		if !found {
			limits = ContractLimits()
		}

		measurements := measureLimits(byAccount[account], b.limits(limits), freshAccounts)
		for _, m := range measurements {
			row := table.row(m.limit)
			row.Accounts++
			row.Admitted += m.admitted
			row.Refused += m.refused
			row.Most = max(row.Most, m.most)
			if b.exclusive {
				*row.WronglyRefused += m.wronglyRefused
			}
		}
	}

	for i := range table.rows {
		row := &table.rows[i]
		nothingWronglyRefused := row.WronglyRefused == nil || *row.WronglyRefused == 0
		row.Held = row.Most <= row.Count && nothingWronglyRefused
	}

	return table.rows
}

// limitTable is the rows of one bucket: one for each limit that some account has.
type limitTable struct {
	bucket *bucket
	rows   []LimitRow
}

// row returns the row of a limit, which is added if it is new. The pointer is valid until another
// row is added.
func (t *limitTable) row(limit Limit) *LimitRow {
	for i := range t.rows {
		row := &t.rows[i]
		if row.Count == limit.Count && row.Seconds == limit.Span.Seconds() {
			return row
		}
	}

	added := LimitRow{Bucket: t.bucket.name, Count: limit.Count, Seconds: limit.Span.Seconds()}
	if t.bucket.exclusive {
		added.WronglyRefused = new(int)
	}

	t.rows = append(t.rows, added)

	return &t.rows[len(t.rows)-1]
}

// requestsByAccount returns the requests that the bucket counts, by account label. Requests
// without an account, such as those of a script that plays no vendor, are left out.
func (s *sampleSet) requestsByAccount(b *bucket) map[string][]request {
	counted := make([]bool, len(s.names))
	for i, name := range s.names {
		counted[i] = b.counts(name)
	}

	byAccount := map[string][]request{}
	for _, r := range s.requests {
		account := s.names[r.account]
		if account != "" && counted[r.endpoint] {
			byAccount[account] = append(byAccount[account], r)
		}
	}

	return byAccount
}

// limitMeasurement is what is certain about one limit of one account.
type limitMeasurement struct {
	limit Limit

	admitted int // requests that were certainly counted
	refused  int // requests that were answered 429

	// most is the largest number of requests that were certainly counted within the span.
	most int

	// wronglyRefused counts the refusals for which all limits of the bucket had room.
	wronglyRefused int
}

// measureLimits looks at all requests of one account in one bucket, in any order, and returns
// a measurement for each limit. It is not known whether a request without an answer, or with a 5xx,
// was counted. Such a request is left out of what was admitted, and fills the windows before a
// refusal: both favour the service.
//
// An account that is not fresh may have filled windows that began before the first request of this
// run, so no refusal in such a window is called wrong.
func measureLimits(requests []request, limits []Limit, freshAccount bool) []limitMeasurement {
	certain := boundsOf(requests, (*request).admitted)
	possible := boundsOf(requests, func(r *request) bool { return !r.refused() })

	began := int64(0) // windows that began before this moment are not judged
	if !freshAccount {
		began = firstSent(requests)
	}

	wronglyRefused := 0
	for i := range requests {
		r := &requests[i]
		if r.refused() && possible.hadRoom(r, limits, began) {
			wronglyRefused++
		}
	}

	var measurements []limitMeasurement
	for _, limit := range limits {
		shorter := int64(float64(limit.Span) * (1 - clockDrift))
		measurements = append(measurements, limitMeasurement{
			limit:          limit,
			admitted:       len(certain.sent),
			refused:        len(requests) - len(possible.sent),
			most:           certain.mostWithin(shorter),
			wronglyRefused: wronglyRefused,
		})
	}

	return measurements
}

// firstSent returns when the first request was sent, in nanoseconds since 1970; 0 if there is none.
func firstSent(requests []request) int64 {
	first := int64(0)
	for i := range requests {
		sent := requests[i].sent()
		if first == 0 || sent < first {
			first = sent
		}
	}

	return first
}

// bounds are the moments at which many requests were sent and answered, each list ascending, in
// nanoseconds since 1970. The service counted each request between its two moments. The lists do
// not tell which moments belong together.
type bounds struct{ sent, answered []int64 }

// boundsOf returns the bounds of the chosen requests.
func boundsOf(requests []request, chosen func(*request) bool) *bounds {
	b := &bounds{}
	for i := range requests {
		r := &requests[i]
		if chosen(r) {
			b.sent = append(b.sent, r.sent())
			b.answered = append(b.answered, r.answered)
		}
	}

	slices.Sort(b.sent)
	slices.Sort(b.answered)

	return b
}

// mostWithin returns the largest number of requests that were certainly counted within less
// than the span, in nanoseconds: those that were answered by some moment, without all those that
// were sent before the span that ends at that moment.
func (b *bounds) mostWithin(span int64) int {
	most := 0
	for i, end := range b.answered {
		most = max(most, i+1-countUpTo(b.sent, end-span))
	}

	return most
}

// hadRoom reports whether each limit certainly had room for r, at whatever moment r was refused:
// fewer requests than allowed can have been counted in the window before it. began is when the run
// began, in nanoseconds since 1970: a window that began earlier may hold requests that b does not
// have, so it did not certainly have room.
func (b *bounds) hadRoom(r *request, limits []Limit, began int64) bool {
	for _, limit := range limits {
		longer := int64(float64(limit.Span) * (1 + clockDrift))
		windowBegan := r.sent() - longer
		if windowBegan < began {
			return false
		}

		counted := countUpTo(b.sent, r.answered) - countUpTo(b.answered, windowBegan)
		if counted >= limit.Count {
			return false
		}
	}

	return true
}

// countUpTo returns how many of the ascending moments are not after the given one.
func countUpTo(moments []int64, moment int64) int {
	count, _ := slices.BinarySearch(moments, moment+1)

	return count
}
