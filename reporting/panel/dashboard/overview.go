package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/cache"
	"vendorapi/reporting/panel/layout"
)

// chartMinutes is how many minutes the overview looks back, the one under way
// not counted.
const chartMinutes = 60

// How long what was read is shown to others who ask meanwhile.
const (
	overviewAge = 3 * time.Second
	partiesAge  = 5 * time.Second // accounts and webhook endpoints: there may be 10,000
	refusedAge  = 10 * time.Second
	pingAge     = 5 * time.Second
	// pingSpare is until when ClickHouse's last word is taken while it is asked
	// anew: when it hangs, what Redis says does not wait for it.
	pingSpare = 10 * time.Second
)

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
	refused       []ledger.RefusedUpdate // the newest
	// history says that ClickHouse answers.
	history  bool
	programs []readiness
}

// remember prepares what is shared among those who ask.
func (p *Pages) remember() {
	p.seen = cache.Cache[*seen]{MaxAge: overviewAge, Timeout: 2 * patience, Read: p.readSeen}
	p.accounts = cache.Cache[[]*delivery.Account]{MaxAge: partiesAge, Timeout: patience, Read: p.ledger.Accounts.List}
	p.endpoints = cache.Cache[[]*ledger.WebhookEndpoint]{MaxAge: partiesAge, Timeout: patience, Read: p.ledger.Webhooks.Endpoints}
	p.refused = cache.Cache[[]ledger.RefusedUpdate]{MaxAge: refusedAge, Timeout: patience,
		Read: func(ctx context.Context) ([]ledger.RefusedUpdate, error) {
			return p.ledger.Monitor.RefusedUpdates(ctx, readTraces)
		}}
	p.pinged = cache.Cache[bool]{MaxAge: pingAge, MaxStale: pingSpare, Timeout: pingPatience,
		Read: func(ctx context.Context) (bool, error) { return p.archive.Ping(ctx) == nil, nil }}
}

func (p *Pages) readSeen(ctx context.Context) (*seen, error) {
	s := &seen{at: time.Now(), lags: map[ledger.Role]ledger.Lag{}, programs: p.programs()}
	r := p.reading(ctx)
	r.part("activity", func(ctx context.Context) (err error) {
		s.activity, err = p.ledger.Monitor.Activity(ctx, chartMinutes+1)
		return err
	})
	r.part("streams", func(ctx context.Context) error {
		stats, err := p.ledger.Monitor.Stats(ctx)
		if err == nil {
			s.stats = &stats
		}
		return err
	})
	r.part("webhook queues", func(ctx context.Context) (err error) {
		s.queues, err = p.ledger.Monitor.QueueStats(ctx)
		return err
	})
	r.part("webhook endpoints", func(ctx context.Context) (err error) {
		s.endpoints, err = p.endpoints.Get(ctx)
		s.readEndpoints = err == nil
		return err
	})
	r.part("accounts", func(ctx context.Context) (err error) {
		s.accounts, err = p.accounts.Get(ctx)
		return err
	})
	r.part("fleets", func(ctx context.Context) (err error) {
		s.fleets, err = p.fleets(ctx)
		return err
	})
	r.part("refused updates", func(ctx context.Context) (err error) {
		s.refused, err = p.refused.Get(ctx)
		return err
	})
	r.part("ClickHouse", func(ctx context.Context) (err error) {
		s.history, err = p.pinged.Get(ctx) // its absence is no lost part but what there is to say
		return err
	})
	p.readLags(r, s)
	s.lost = r.wait()
	return s, nil
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
			lag, err := p.ledger.Streams.Lag(ctx, role.role)
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
	return p.pages.Show(w, r, "overview", layout.View{Title: "Overview", Charts: true, Data: s.view()})
}

func (p *Pages) overviewLive(w http.ResponseWriter, r *http.Request) error {
	s, err := p.seen.Get(r.Context())
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "overview-live", s.view())
}
