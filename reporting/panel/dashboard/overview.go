package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

const (
	chartMinutes = 60 // full minutes in the charts
	rankedCodes  = 8  // error codes that the chart of refusals names
	mostConcerns = 25 // that the overview lists
	// refusedPeriod is how long the overview shows refused updates.
	refusedPeriod = 24 * time.Hour
	// longestWait is how old the oldest webhook may be without being marked.
	longestWait = 10 * time.Minute
)

// How long what was read is shown to others who ask meanwhile.
const (
	overviewAge = 3 * time.Second
	listAge     = 5 * time.Second // accounts and webhook endpoints: there may be 10,000
	refusedAge  = 10 * time.Second
	pingAge     = 5 * time.Second
	// pingStale is until when the last answer is used while ClickHouse hangs.
	pingStale   = 10 * time.Second
	pingTimeout = time.Second
)

// seen is what the overview is made of; what could not be read is nil and in lost.
type seen struct {
	at        time.Time
	lost      []string
	activity  []ledger.MinuteActivity // the last is the minute in progress
	stats     *ledger.Stats
	queues    map[ledger.EndpointState]ledger.QueueStats
	lags      map[ledger.Role]ledger.Lag
	endpoints []*ledger.WebhookEndpoint
	accounts  []*delivery.Account
	fleets    []*delivery.Fleet
	refused   []ledger.RefusedUpdate // the newest first
	history   bool                   // ClickHouse answers
	programs  []readiness
}

const endpointsPart = "webhook endpoints"

func (p *Pages) readSeen(ctx context.Context) (*seen, error) {
	s := &seen{at: time.Now(), lags: map[ledger.Role]ledger.Lag{}, programs: p.programs()}
	r := p.reading(ctx)
	read(r, "activity", &s.activity, func(ctx context.Context) ([]ledger.MinuteActivity, error) {
		return p.ledger.Monitor.Activity(ctx, chartMinutes+1)
	})
	read(r, "streams", &s.stats, func(ctx context.Context) (*ledger.Stats, error) {
		stats, err := p.ledger.Monitor.Stats(ctx)
		return &stats, err
	})
	read(r, "webhook queues", &s.queues, p.ledger.Monitor.QueueStats)
	read(r, endpointsPart, &s.endpoints, p.endpoints.Get)
	read(r, "accounts", &s.accounts, p.accounts.Get)
	read(r, "fleets", &s.fleets, p.fleets)
	read(r, "refused updates", &s.refused, p.refused.Get)
	read(r, "ClickHouse", &s.history, p.pinged.Get) // its absence is shown, and no lost part
	lags := make([]*ledger.Lag, len(roles))
	for i, role := range roles {
		read(r, "lag of the role "+role.name, &lags[i], func(ctx context.Context) (*ledger.Lag, error) {
			lag, err := p.ledger.Streams.Lag(ctx, role.role)
			return &lag, err
		})
	}
	s.lost = r.wait()
	for i, lag := range lags {
		if lag != nil {
			s.lags[roles[i].role] = *lag
		}
	}
	return s, nil
}

// roles are the workers, and how old their oldest entry may be.
var roles = []struct {
	role    ledger.Role
	name    string
	overdue time.Duration
}{
	{ledger.RoleStatus, "Status", 30 * time.Second},
	{ledger.RoleWebhook, "Webhook", 30 * time.Second},
	{ledger.RoleExport, "Export", 2 * time.Minute},
}

func (s *seen) older(than time.Duration, t time.Time) bool {
	return !t.IsZero() && s.at.Sub(t) > than
}

type overviewView struct {
	At                         time.Time
	Lost                       []string
	History                    bool
	Tiles                      []tile
	Orders, Outcomes, Refusals *layout.Chart
	Attention                  []concern
	More                       int // concerns that are not listed
	Answering                  string
}

func (s *seen) view() *overviewView {
	v := &overviewView{At: s.at, Lost: s.lost, History: s.history, Tiles: s.tiles(), Answering: s.answering()}
	v.Orders, v.Outcomes, v.Refusals = s.charts()
	v.Attention = s.concerns()
	if n := len(v.Attention) - mostConcerns; n > 0 {
		v.Attention, v.More = v.Attention[:mostConcerns], n
	}
	return v
}

func (p *Pages) overview(w http.ResponseWriter, r *http.Request) error {
	s, err := p.seen.Get(r.Context())
	if err != nil {
		return err
	}
	if layout.IsLive(r) {
		return p.pages.Part(w, r, "overview-live", s.view())
	}
	return p.pages.Show(w, r, "overview", layout.View{Title: "Overview", Charts: true, Data: s.view()})
}

// tile is one figure of the overview. Its value is "–" when it could not be read.
type tile struct {
	Name, Link, Value, Note string
	Tone                    string // good, warn, bad or empty
}

func newTile(name, link string) tile { return tile{Name: name, Link: link, Value: "–"} }

func (s *seen) tiles() []tile {
	// Most kinds of requests are only counted when refused, so no share is shown.
	minute, orders, rejected := newTile("Orders a minute", ""), newTile("Orders an hour", ""), newTile("Requests refused", "")
	if h, ok := s.past(); ok {
		minute.Value, minute.Note = layout.Count(h.last().Created), layout.Count(h.running.Created)+" so far in this one"
		orders.Value, orders.Note = layout.Count(h.orders), layout.Count(h.ended)+" ended"
		rejected.Value, rejected.Note = layout.Count(h.refused), "in the hour"
		if codes := h.ranked(); len(codes) > 0 {
			rejected.Note += ", most often " + strings.ToLower(strings.ReplaceAll(string(codes[0]), "_", " "))
		}
	}
	open := newTile("In progress", "/orders?status="+openStatus)
	refused, dead := newTile("Refused updates", "/refused-updates"), newTile("Dead letters", "/dead-letters")
	if s.stats != nil {
		open.Value = layout.Count(s.stats.InFlight)
		refused.Value, refused.Note = layout.Count(s.stats.RefusedUpdates), "of couriers, on record"
		dead.Value, dead.Tone = layout.Count(s.stats.DeadLetters), toneIf(s.stats.DeadLetters > 0, "bad")
	}
	if !s.history {
		open.Link, open.Note = "", "a list needs ClickHouse"
	}
	tiles := append([]tile{minute, orders, rejected, open}, s.webhookTiles()...)
	for _, role := range roles {
		t := newTile(role.name+" lag", "")
		if lag, ok := s.lags[role.role]; ok {
			t.Value, t.Note = layout.Count(lag.Entries), "up to date"
			if lag.Entries > 0 {
				t.Note = "oldest " + s.age(lag.Oldest)
			}
			t.Tone = toneIf(s.older(role.overdue, lag.Oldest), "warn")
		}
		tiles = append(tiles, t)
	}
	return append(tiles, refused, dead)
}

func (s *seen) webhookTiles() []tile {
	waiting, breakers, unreachable := newTile("Webhooks waiting", "/webhooks"), newTile("Breakers open", "/webhooks"), newTile("Unreachable", "/webhooks")
	if s.queues != nil {
		var sum ledger.QueueStats
		for _, q := range s.queues {
			sum.Events += q.Events
			sum.BreakersOpen += q.BreakersOpen
			if sum.Oldest.IsZero() || !q.Oldest.IsZero() && q.Oldest.Before(sum.Oldest) {
				sum.Oldest = q.Oldest
			}
		}
		waiting.Value, waiting.Note = layout.Count(sum.Events), "nothing waits"
		if sum.Events > 0 {
			waiting.Note, waiting.Tone = "oldest "+s.age(sum.Oldest), toneIf(s.older(longestWait, sum.Oldest), "warn")
		}
		breakers.Value, breakers.Tone = layout.Count(sum.BreakersOpen), toneIf(sum.BreakersOpen > 0, "warn")
	}
	if !slices.Contains(s.lost, endpointsPart) {
		var n int64
		for _, e := range s.endpoints {
			if unreachableOrGone(e) {
				n++
			}
		}
		unreachable.Value, unreachable.Note = layout.Count(n), "of "+plural(int64(len(s.endpoints)), "endpoint", "endpoints")
		unreachable.Tone = toneIf(n > 0, "bad")
	}
	return []tile{waiting, breakers, unreachable}
}

func unreachableOrGone(e *ledger.WebhookEndpoint) bool {
	return e.State == ledger.EndpointUnreachable || e.State == ledger.EndpointGone
}

func (s *seen) age(t time.Time) string {
	if t.IsZero() {
		return "not known"
	}
	return layout.Span(max(s.at.Sub(t), 0))
}

func toneIf(is bool, tone string) string {
	if is {
		return tone
	}
	return ""
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return layout.Count(n) + " " + many
}

type hour struct {
	minutes                []ledger.MinuteActivity
	running                ledger.MinuteActivity // the one in progress
	orders, ended, refused int64
	byCode                 map[delivery.Code]int64
}

func (h *hour) last() ledger.MinuteActivity { return h.minutes[len(h.minutes)-1] }

// past is the hour that the activity covers; false when it could not be read.
func (s *seen) past() (h hour, ok bool) {
	n := len(s.activity) - 1
	if n < 1 {
		return h, false
	}
	h = hour{minutes: s.activity[:n], running: s.activity[n], byCode: map[delivery.Code]int64{}}
	for _, m := range h.minutes {
		h.orders += m.Created
		h.ended += m.Delivered + m.Failed + m.Cancelled
		for code, n := range m.Refused {
			h.byCode[code] += n
			h.refused += n
		}
	}
	return h, true
}

func (h *hour) ranked() []delivery.Code {
	return slices.SortedFunc(maps.Keys(h.byCode), func(a, b delivery.Code) int {
		return cmp.Or(cmp.Compare(h.byCode[b], h.byCode[a]), cmp.Compare(a, b))
	})
}

// charts are nil without activity; refusals also when nothing was refused.
func (s *seen) charts() (orders, outcomes, byCode *layout.Chart) {
	h, ok := s.past()
	if !ok {
		return nil, nil, nil
	}
	var labels []string
	var created, delivered, failed, cancelled []int64
	for _, m := range h.minutes {
		labels = append(labels, layout.Minute(m.At))
		created, delivered = append(created, m.Created), append(delivered, m.Delivered)
		failed, cancelled = append(failed, m.Failed), append(cancelled, m.Cancelled)
	}
	orders = &layout.Chart{ID: "orders-by-minute", Title: "Orders accepted per minute", Unit: "orders", Labels: labels,
		Series: []layout.Series{layout.Counts("Accepted", "accent", created)}}
	outcomes = &layout.Chart{ID: "outcomes-by-minute", Title: "Orders ended per minute", Unit: "orders", Stacked: true, Labels: labels,
		Series: []layout.Series{layout.Counts("Delivered", "good", delivered), layout.Counts("Failed", "bad", failed), layout.Counts("Cancelled", "quiet", cancelled)}}
	return orders, outcomes, h.refusals()
}

func (h *hour) refusals() *layout.Chart {
	if h.refused == 0 {
		return nil
	}
	c := &layout.Chart{ID: "refusals-by-code", Title: "Requests refused in these 60 minutes, by error code", Unit: "requests", Across: true}
	var counts []int64
	for i, code := range h.ranked() {
		switch n := h.byCode[code]; {
		case i < rankedCodes:
			c.Labels, counts = append(c.Labels, string(code)), append(counts, n)
		case i == rankedCodes:
			c.Labels, counts = append(c.Labels, "all others"), append(counts, n)
		default:
			counts[rankedCodes] += n
		}
	}
	c.Series = []layout.Series{layout.Counts("Refused", "warn", counts)}
	return c
}

type concern struct {
	State string // in one word
	Tone  string // bad or warn
	// Subject is what it is about, with a link to where it can be changed.
	Subject, Link string
	Note          string
	Since         time.Time // zero: not known
}

// concerns lists them, the worst first and of those the oldest.
func (s *seen) concerns() []concern {
	all := slices.Concat(s.programConcerns(), s.systemConcerns(), s.refusalConcerns(), s.endpointConcerns(), s.accountConcerns(), s.fleetConcerns())
	slices.SortStableFunc(all, func(a, b concern) int {
		return cmp.Or(cmp.Compare(a.Tone, b.Tone), a.Since.Compare(b.Since)) // "bad" comes before "warn"
	})
	return all
}

func (s *seen) systemConcerns() (list []concern) {
	if !s.history {
		list = append(list, concern{State: "unavailable", Tone: "bad", Subject: "ClickHouse",
			Note: "It does not answer. What is live works on and what happens is kept for it; history, the search by store and the reports are unavailable."})
	}
	if s.stats != nil && s.stats.DeadLetters > 0 {
		list = append(list, concern{State: "lost", Tone: "bad", Subject: plural(s.stats.DeadLetters, "dead letter", "dead letters"),
			Link: "/dead-letters", Note: "entries that no worker could read or handle"})
	}
	for _, role := range roles {
		if lag := s.lags[role.role]; s.older(role.overdue, lag.Oldest) {
			list = append(list, concern{State: "behind", Tone: "warn", Subject: role.name + " worker", Since: lag.Oldest,
				Note: plural(lag.Entries, "entry waits", "entries wait")})
		}
	}
	return list
}

// refusalConcerns count the refused updates of a day; late deliveries apart.
func (s *seen) refusalConcerns() (list []concern) {
	for _, kind := range []struct {
		late                          bool
		state, tone, one, many, notes string
	}{
		{true, "late", "bad", "late delivery", "late deliveries", "Delivered was reported after the order had ended: the amount may have been collected"},
		{false, "refused", "warn", "refused update", "refused updates", "in the last 24 hours; each with its reason in the list"},
	} {
		c, n := concern{State: kind.state, Tone: kind.tone, Link: "/refused-updates", Note: kind.notes}, int64(0)
		for _, u := range s.refused {
			if u.Late == kind.late && !s.older(refusedPeriod, u.At) {
				n, c.Since = n+1, u.At
			}
		}
		if len(s.refused) == mostRefused {
			c.Note += "; there may be more"
		}
		if c.Subject = plural(n, kind.one, kind.many); n > 0 {
			list = append(list, c)
		}
	}
	return list
}

func (s *seen) endpointConcerns() (list []concern) {
	names := namesOf(s.accounts)
	for _, e := range s.endpoints {
		c := concern{Subject: "Webhooks of " + names.of(e.Account), Link: "/webhooks/" + e.Account.String(), Since: e.StateSince,
			State: string(e.State), Note: plural(e.Backlog, "event waits", "events wait")}
		switch {
		case unreachableOrGone(e):
			c.Tone = "bad"
		case e.BreakerOpen:
			c.Tone, c.State, c.Since = "warn", "breaker open", e.BreakerSince
		default:
			continue
		}
		switch {
		case e.Backlog == 0 || e.NextAttempt.IsZero():
		case e.NextAttempt.After(s.at):
			c.Note += ", next attempt " + layout.Ago(s.at, e.NextAttempt)
		default:
			c.Note += ", next attempt now"
		}
		list = append(list, c)
	}
	return list
}

func (s *seen) accountConcerns() (list []concern) {
	for _, a := range s.accounts {
		if a.ExcessSince.IsZero() {
			continue
		}
		note := "more than half of its requests are refused for its limits"
		if a.Suspended {
			note += "; the account is suspended"
		}
		list = append(list, concern{State: "in excess", Tone: "warn", Subject: a.Name, Link: "/accounts/" + a.ID.String(), Since: a.ExcessSince, Note: note})
	}
	return list
}

func (s *seen) fleetConcerns() (list []concern) {
	for _, f := range s.fleets {
		c := concern{Tone: "warn", Subject: f.Name, Link: "/fleets/" + f.ID.String()}
		switch {
		case f.Disabled:
			c.State, c.Note = "disabled", "every request of it is refused with "+string(delivery.CodeFleetDisabled)+", orders of its stores with "+string(delivery.CodeFleetSuspended)
		case f.Suspended:
			c.State, c.Note = "suspended", "orders of its stores are refused with "+string(delivery.CodeFleetSuspended)
		case f.Couriers == 0:
			c.State, c.Note = "no couriers", "orders of its stores are refused with "+string(delivery.CodeFleetUnavailable)
		default:
			continue
		}
		list = append(list, c)
	}
	return list
}
