package watch

import (
	"context"
	"net/http"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/frame"
)

// chartMinutes is how many minutes the overview looks back, the one under way
// not counted.
const chartMinutes = 60

// glanceAge is how long an overview is shown to others who ask meanwhile, so
// that many who watch cost what one does.
const glanceAge = time.Second

// pingPatience is how long ClickHouse may take to say that it is there.
const pingPatience = time.Second

// seen is what the overview is made of. What could not be read is nil or zero,
// and named in lost.
type seen struct {
	at        time.Time
	lost      []string
	activity  []ledger.MinuteActivity // the last is the minute under way
	stats     *ledger.Stats
	queues    map[ledger.EndpointState]ledger.QueueStats // nil: lost
	lags      map[ledger.Role]ledger.Lag                 // without those lost
	endpoints []*ledger.WebhookEndpoint
	accounts  []*delivery.Account
	fleets    []*delivery.Fleet
	// readEndpoints and so on tell an empty list from one that could not be read.
	readEndpoints bool
	// history says that ClickHouse answers.
	history bool
}

// glance keeps the last overview for a moment.
type glance struct {
	mu   sync.Mutex
	last *seen
}

// look is what there is to see now, or was at most glanceAge ago.
func (p *Pages) look(ctx context.Context) *seen {
	p.glance.mu.Lock()
	defer p.glance.mu.Unlock()
	if p.glance.last == nil || time.Since(p.glance.last.at) > glanceAge {
		// Who asked first may go; others wait for the same answer.
		p.glance.last = p.readSeen(context.WithoutCancel(ctx))
	}
	return p.glance.last
}

func (p *Pages) readSeen(ctx context.Context) *seen {
	s := &seen{at: time.Now(), lags: map[ledger.Role]ledger.Lag{}}
	r := p.reading(ctx)
	r.part("activity", func(ctx context.Context) (err error) {
		s.activity, err = p.ledger.Activity(ctx, chartMinutes+1)
		return err
	})
	r.part("streams", func(ctx context.Context) error {
		stats, err := p.ledger.Stats(ctx)
		if err == nil {
			s.stats = &stats
		}
		return err
	})
	r.part("webhook queues", func(ctx context.Context) (err error) {
		s.queues, err = p.ledger.QueueStats(ctx)
		return err
	})
	r.part("webhook endpoints", func(ctx context.Context) (err error) {
		s.endpoints, err = p.ledger.WebhookEndpoints(ctx)
		s.readEndpoints = err == nil
		return err
	})
	r.part("accounts", func(ctx context.Context) (err error) {
		s.accounts, err = p.ledger.Accounts(ctx)
		return err
	})
	r.part("fleets", func(ctx context.Context) (err error) {
		s.fleets, err = p.fleets(ctx)
		return err
	})
	r.part("ClickHouse", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pingPatience)
		defer cancel()
		s.history = p.archive.Ping(ctx) == nil
		return nil // its absence is no lost part but what there is to say
	})
	p.readLags(r, s)
	s.lost = r.wait()
	return s
}

// roleNames are what operators call the roles.
var roleNames = []struct {
	role ledger.Role
	name string
	// patience is how old the oldest entry may be before it needs attention.
	patience time.Duration
}{
	{ledger.RoleStatus, "Status", 30 * time.Second},
	{ledger.RoleWebhook, "Webhook", 30 * time.Second},
	{ledger.RoleExport, "Export", 2 * time.Minute},
}

func (p *Pages) readLags(r *reading, s *seen) {
	var mu sync.Mutex
	for _, role := range roleNames {
		r.part("lag of the role "+role.name, func(ctx context.Context) error {
			lag, err := p.ledger.Lag(ctx, role.role)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			s.lags[role.role] = lag
			return nil
		})
	}
}

// overviewView is what the templates "overview" and "overview-live" show.
type overviewView struct {
	At      time.Time
	Lost    []string
	History bool
	Tiles   []tile
	// Charts; nil when the activity could not be read, Refusals also when
	// nothing was refused.
	Orders, Outcomes, Refusals *frame.Chart
	Attention                  []concern
	More                       int // concerns that are not listed
}

func (s *seen) view() *overviewView {
	v := &overviewView{At: s.at, Lost: s.lost, History: s.history, Tiles: s.tiles()}
	v.Orders, v.Outcomes, v.Refusals = s.charts()
	v.Attention = s.concerns()
	if n := len(v.Attention) - mostConcerns; n > 0 {
		v.Attention, v.More = v.Attention[:mostConcerns], n
	}
	return v
}

func (p *Pages) overview(w http.ResponseWriter, r *http.Request) error {
	return p.pages.Show(w, r, "overview", frame.View{Title: "Overview", Charts: true, Data: p.look(r.Context()).view()})
}

func (p *Pages) overviewLive(w http.ResponseWriter, r *http.Request) error {
	return p.pages.Part(w, r, "overview-live", p.look(r.Context()).view())
}
