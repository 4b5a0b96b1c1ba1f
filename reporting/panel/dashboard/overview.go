package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/reporting/layout"
)

const (
	chartMinutes = 60 // full minutes in the charts
	rankedCodes  = 8  // error codes that the chart of refusals names
	mostConcerns = 25 // that the overview lists

	refusedPeriod = 24 * time.Hour   // that the overview shows refused updates
	longestWait   = 10 * time.Minute // of the oldest webhook, without being marked
)

// How long what was read is shown to others who ask meanwhile.
const (
	overviewAge = 3 * time.Second
	refusedAge  = 10 * time.Second
	pingAge     = 5 * time.Second
	pingStale   = 10 * time.Second // while ClickHouse hangs
	pingTimeout = time.Second
)

// The parts of pages that may be lost, as readers see them.
const (
	endpointsPart    = "webhook endpoints"
	queuesPart       = "webhook queues"
	refusedPart      = "refused updates"
	accountNamesPart = "names of accounts"
)

// seen is the overview: what was read, and what follows from it. What could not be read is
// nil and in Lost.
type seen struct {
	At        time.Time
	Lost      []string
	activity  []limits.MinuteActivity // the last is the minute in progress
	Stats     *operations.Stats
	queues    map[partitions.EndpointState]partitions.QueueStats
	NoOwner   bool // some partition has none: nobody knows what waits for webhooks
	Workers   []worker
	Endpoints *receivers
	accounts  *excess
	fleets    []*delivery.Fleet
	refused   []operations.RefusedUpdate // the newest first
	History   bool                       // ClickHouse answers
	Programs  []readiness

	Hour                       *hour // nil: it could not be read
	Orders, Outcomes, Refusals *layout.Chart
	Attention                  []concern
	More                       int // concerns that are not listed
}

// receivers are the worst of the webhook endpoints that are not healthy, with their accounts'
// names, and how many there are in each state.
type receivers struct {
	worst  []*webhooks.WebhookEndpoint
	names  layout.Names
	counts map[partitions.EndpointState]int64
}

// excess is some of the accounts in sustained excess, and how many there are.
type excess struct {
	inExcess []*delivery.Account
	counts   accounts.AccountCounts
}

// The overview reads no more receivers and accounts than these.
const (
	worstRead    = 100
	inExcessRead = mostConcerns
)

func (p *Pages) readReceivers(ctx context.Context) (*receivers, error) {
	counts, incomplete := p.Ledger.Webhooks.Counts(ctx)
	if incomplete != nil && !errors.Is(incomplete, ledger.ErrIncomplete) {
		return nil, incomplete
	}

	worst, err := p.Ledger.Webhooks.Unhealthy(ctx, worstRead)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return nil, err
	}

	incomplete = cmp.Or(incomplete, err)
	ids := make([]delivery.AccountID, len(worst))
	for i, e := range worst {
		ids[i] = e.Account
	}

	names, err := p.Lists.AccountNames(ctx, ids)

	return &receivers{worst: worst, names: names, counts: counts}, cmp.Or(incomplete, err)
}

func (p *Pages) readAccounts(ctx context.Context) (*excess, error) {
	counts, incomplete := p.Ledger.Accounts.Counts(ctx)
	if incomplete != nil && !errors.Is(incomplete, ledger.ErrIncomplete) {
		return nil, incomplete
	}
	inExcess, _, err := p.Ledger.Accounts.Page(ctx, accounts.AccountFilter{State: accounts.AccountInExcess}, "", inExcessRead)
	return &excess{inExcess: inExcess, counts: counts}, cmp.Or(incomplete, err)
}

type worker struct {
	role    ledger.Role
	Name    string
	overdue time.Duration   // how old its oldest entry may be
	Lag     *partitions.Lag // nil: it could not be read
}

var workers = []worker{
	{ledger.RoleStatus, "Status", 30 * time.Second, nil},
	{ledger.RoleWebhook, "Webhook", 30 * time.Second, nil},
	{ledger.RoleExport, "Export", 2 * time.Minute, nil},
}

func (p *Pages) readSeen(ctx context.Context) (*seen, error) {
	s := &seen{At: time.Now(), Workers: slices.Clone(workers)}
	s.Programs, _ = p.probed.Load().([]readiness)
	r := p.reading(ctx)
	read(r, "activity", &s.activity, func(ctx context.Context) ([]limits.MinuteActivity, error) {
		return p.Ledger.Limits.Activity(ctx, chartMinutes+1)
	})
	read(r, "streams", &s.Stats, pointed(p.Ledger.Monitor.Stats))
	read(r, queuesPart, &s.queues, func(ctx context.Context) (map[partitions.EndpointState]partitions.QueueStats, error) {
		queues, err := p.Ledger.Monitor.QueueStats(ctx)
		if errors.Is(err, operations.ErrNoOwner) {
			return nil, nil
		}
		return queues, err
	})

	read(r, endpointsPart, &s.Endpoints, p.readReceivers)
	read(r, "accounts", &s.accounts, p.readAccounts)
	read(r, "fleets", &s.fleets, p.Lists.Fleets)
	read(r, refusedPart, &s.refused, p.refused.Get)
	read(r, "ClickHouse", &s.History, p.pinged.Get) // its absence is shown, and no lost part
	for i := range s.Workers {
		w := &s.Workers[i]
		read(r, "lag of the role "+w.Name, &w.Lag, pointed(func(ctx context.Context) (partitions.Lag, error) { return p.Ledger.Streams.Lag(ctx, w.role) }))
	}

	s.Lost = r.wait()
	s.NoOwner = s.queues == nil && !slices.Contains(s.Lost, queuesPart)
	s.conclude()

	return s, nil
}

func (s *seen) conclude() {
	s.Hour = s.hour()
	s.Orders, s.Outcomes, s.Refusals = s.Hour.charts()
	s.Attention = s.concerns()
	s.More = s.unread()
	if n := len(s.Attention) - mostConcerns; n > 0 {
		s.Attention, s.More = s.Attention[:mostConcerns], s.More+n
	}
}

// unread is how many concerns about receivers and accounts were counted and not read.
func (s *seen) unread() (n int) {
	if s.Endpoints != nil {
		read := 0
		for _, e := range s.Endpoints.worst {
			if unreachableOrGone(e) {
				read++
			}
		}
		n += max(0, s.Unreachable()-read)
	}

	if s.accounts != nil {
		n += max(0, int(s.accounts.counts.Excess)-len(s.accounts.inExcess))
	}

	return n
}

// pointed reads a value of which nil says that there is none.
func pointed[T any](get func(context.Context) (T, error)) func(context.Context) (*T, error) {
	return func(ctx context.Context) (*T, error) {
		value, err := get(ctx)
		return &value, err
	}
}

func (s *seen) older(than time.Duration, t time.Time) bool { return !t.IsZero() && s.At.Sub(t) > than }

// Overdue reports whether the worker's oldest entry is too old.
func (s *seen) Overdue(w worker) bool { return w.Lag != nil && s.older(w.overdue, w.Lag.Oldest) }

func (p *Pages) overview(w http.ResponseWriter, r *http.Request) error {
	s, err := p.seen.Get(r.Context())
	if err != nil {
		return err
	}
	return p.Show(w, r, "overview", layout.View{Title: "Overview", Charts: true, Data: s})
}

// Waiting sums up the webhook queues; nil when they could not be read, or NoOwner.
func (s *seen) Waiting() *partitions.QueueStats {
	if s.queues == nil {
		return nil
	}

	sum := new(partitions.QueueStats)
	for _, q := range s.queues {
		sum.Events += q.Events
		sum.BreakersOpen += q.BreakersOpen
		if sum.Oldest.IsZero() || !q.Oldest.IsZero() && q.Oldest.Before(sum.Oldest) {
			sum.Oldest = q.Oldest
		}
	}

	return sum
}

// LongWait reports whether an event has waited for too long.
func (s *seen) LongWait(oldest time.Time) bool { return s.older(longestWait, oldest) }

// EndpointsRead reports whether the webhook endpoints could be read.
func (s *seen) EndpointsRead() bool { return s.Endpoints != nil }

// Registered is how many endpoints there are.
func (s *seen) Registered() (n int) {
	for _, one := range s.Endpoints.counts {
		n += int(one)
	}
	return n
}

// Unreachable is how many endpoints are unreachable or gone.
func (s *seen) Unreachable() int {
	return int(s.Endpoints.counts[partitions.EndpointUnreachable] + s.Endpoints.counts[partitions.EndpointGone])
}

func unreachableOrGone(e *webhooks.WebhookEndpoint) bool {
	return e.State == partitions.EndpointUnreachable || e.State == partitions.EndpointGone
}

// hour sums up the full minutes. Most kinds of requests are only counted when refused,
// so no share is shown.
type hour struct {
	minutes                []limits.MinuteActivity
	Last, Running          limits.MinuteActivity // the last full minute, and the one in progress
	Orders, Ended, Refused int64
	byCode                 map[delivery.Code]int64
}

func (s *seen) hour() *hour {
	n := len(s.activity) - 1
	if n < 1 {
		return nil
	}

	h := &hour{minutes: s.activity[:n], Last: s.activity[n-1], Running: s.activity[n], byCode: map[delivery.Code]int64{}}
	for _, m := range h.minutes {
		h.Orders += m.Created
		h.Ended += m.Delivered + m.Failed + m.Cancelled
		for code, n := range m.Refused {
			h.byCode[code] += n
			h.Refused += n
		}
	}

	return h
}

func (h *hour) ranked() []delivery.Code {
	return slices.SortedFunc(maps.Keys(h.byCode), func(a, b delivery.Code) int {
		return cmp.Or(cmp.Compare(h.byCode[b], h.byCode[a]), cmp.Compare(a, b))
	})
}

// Most is the commonest error code in words; empty without one.
func (h *hour) Most() string {
	for _, code := range h.ranked() {
		return strings.ToLower(strings.ReplaceAll(string(code), "_", " "))
	}
	return ""
}

// charts are nil without activity; refusals also when nothing was refused.
func (h *hour) charts() (orders, outcomes, byCode *layout.Chart) {
	if h == nil {
		return nil, nil, nil
	}

	var labels []string
	var created, delivered, failed, cancelled []int64
	for _, m := range h.minutes {
		labels, created = append(labels, m.At.In(delivery.Istanbul).Format("15:04")), append(created, m.Created)
		delivered, failed, cancelled = append(delivered, m.Delivered), append(failed, m.Failed), append(cancelled, m.Cancelled)
	}

	orders = &layout.Chart{ID: "orders-by-minute", Title: "Orders accepted per minute", Unit: "orders", Labels: labels}
	orders.Add("Accepted", "accent", created)
	outcomes = &layout.Chart{ID: "outcomes-by-minute", Title: "Orders ended per minute", Unit: "orders", Stacked: true, Labels: labels}
	outcomes.Add("Delivered", "good", delivered)
	outcomes.Add("Failed", "bad", failed)
	outcomes.Add("Cancelled", "quiet", cancelled)
	if h.Refused == 0 {
		return orders, outcomes, nil
	}

	byCode = &layout.Chart{ID: "refusals-by-code", Title: "Requests refused in these 60 minutes, by error code", Unit: "requests", Across: true}
	counts := make([]int64, min(len(h.byCode), rankedCodes+1))
	for i, code := range h.ranked() {
		switch {
		case i < rankedCodes:
			byCode.Labels = append(byCode.Labels, string(code))
		case i == rankedCodes:
			byCode.Labels = append(byCode.Labels, "all others")
		}
		counts[min(i, rankedCodes)] += h.byCode[code]
	}

	byCode.Add("Refused", "warn", counts)

	return orders, outcomes, byCode
}

type concern struct {
	Tone  string // bad or warn
	State string // in one word
	// Subject is what it is about, with a link to where it can be changed.
	Subject, Link string
	Note          string
	Since         time.Time // zero: not known
}

// concerns lists them, the worst first and of those the oldest.
func (s *seen) concerns() []concern {
	all := slices.Concat(s.systemConcerns(), s.refusalConcerns(), s.endpointConcerns(), s.partyConcerns())
	slices.SortStableFunc(all, func(a, b concern) int {
		return cmp.Or(cmp.Compare(a.Tone, b.Tone), a.Since.Compare(b.Since)) // "bad" comes before "warn"
	})
	return all
}

func (s *seen) systemConcerns() (list []concern) {
	for _, r := range s.Programs {
		if r.Wrong == nil {
			continue
		}
		c := concern{"bad", "unavailable", r.Name, "", "It does not answer on its private listener.", r.Since}
		if why, ok := strings.CutPrefix(r.Wrong.Error(), "not ready: "); ok {
			c.State, c.Note = "not ready", why
		}
		list = append(list, c)
	}

	if !s.History {
		list = append(list, concern{Tone: "bad", State: "unavailable", Subject: "ClickHouse",
			Note: "It does not answer. What is live works on and what happens is kept for it; history, the search by store and the reports are unavailable."})
	}

	if s.Stats != nil && s.Stats.DeadLetters > 0 {
		list = append(list, concern{Tone: "bad", State: "lost", Subject: layout.Plural(s.Stats.DeadLetters, "dead letter", "dead letters"),
			Link: "/dead-letters", Note: "entries that no worker could read or handle"})
	}

	if s.NoOwner {
		list = append(list, concern{Tone: "bad", State: "no owner", Subject: "Partitions",
			Note: "No worker owns some of them: their orders do not move, and how many webhooks wait is not known."})
	}

	for _, w := range s.Workers {
		if s.Overdue(w) {
			list = append(list, concern{"warn", "behind", w.Name + " worker", "", layout.Plural(w.Lag.Entries, "entry waits", "entries wait"), w.Lag.Oldest})
		}
	}

	return list
}

// refusalConcerns count the refused updates of a day; late deliveries apart.
func (s *seen) refusalConcerns() (list []concern) {
	var late, others int64
	var firstLate, first time.Time
	for _, u := range s.refused {
		switch {
		case s.older(refusedPeriod, u.At):
		case u.Late:
			late, firstLate = late+1, u.At
		default:
			others, first = others+1, u.At
		}
	}

	more := ""
	if len(s.refused) == mostRefused {
		more = "; there may be more"
	}

	if late > 0 {
		list = append(list, concern{"bad", "late", layout.Plural(late, "late delivery", "late deliveries"), "/refused-updates",
			"Delivered was reported after the order had ended: the amount may have been collected" + more, firstLate})
	}

	if others > 0 {
		list = append(list, concern{"warn", "refused", layout.Plural(others, "refused update", "refused updates"), "/refused-updates",
			"in the last 24 hours; each with its reason in the list" + more, first})
	}

	return list
}

func (s *seen) endpointConcerns() (list []concern) {
	if s.Endpoints == nil {
		return nil
	}

	for _, e := range s.Endpoints.worst {
		c := concern{"bad", string(e.State), "Webhooks of " + s.Endpoints.names.Of(e.Account, "account "), "/webhooks/" + e.Account.String(),
			layout.Plural(e.Backlog, "event waits", "events wait"), e.StateSince}
		switch {
		case unreachableOrGone(e):
		case e.BreakerOpen:
			c.Tone, c.State, c.Since = "warn", "breaker open", e.BreakerSince
		default:
			continue
		}

		if e.Unknown {
			c.Note = layout.Plural(e.Backlog, "event or more waits", "events or more wait")
		}

		switch {
		case e.Backlog == 0 || e.NextAttempt.IsZero():
		case e.NextAttempt.After(s.At):
			c.Note += ", next attempt " + layout.Ago(s.At, e.NextAttempt)
		default:
			c.Note += ", next attempt now"
		}

		list = append(list, c)
	}

	return list
}

func (s *seen) partyConcerns() (list []concern) {
	var inExcess []*delivery.Account
	if s.accounts != nil {
		inExcess = s.accounts.inExcess
	}

	for _, a := range inExcess {
		note := "more than half of its requests are refused for its limits"
		if a.Suspended {
			note += "; the account is suspended"
		}
		list = append(list, concern{"warn", "in excess", a.Name, "/accounts/" + a.ID.String(), note, a.ExcessSince})
	}

	for _, f := range s.fleets {
		state := layout.FleetState(f)
		if note := fleetNotes[state]; note != "" {
			list = append(list, concern{"warn", state, f.Name, "/fleets/" + f.ID.String(), note, time.Time{}})
		}
	}

	return list
}

var fleetNotes = map[string]string{
	"disabled":    "every request of it is refused with FLEET_DISABLED, orders of its stores with FLEET_SUSPENDED",
	"suspended":   "orders of its stores are refused with FLEET_SUSPENDED",
	"no couriers": "orders of its stores are refused with FLEET_UNAVAILABLE",
}
