package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"vendorapi/gateway/token"
	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
)

// gateway answers requests. It holds no state that another replica needs: the
// keys are shared, and everything else is in the ledger.
type gateway struct {
	settings settings
	secrets  secrets
	log      *slog.Logger
	metrics  *metrics
	registry *prometheus.Registry
	// scripts measures the calls of each Redis script.
	scripts func(script string) func(took time.Duration)
	tracer  *tracing.Tracer // nil: tracing is off
	// work is the context of calls to the ledger. It is the server's, not the
	// request's: a shutdown lets requests in flight finish, and a client that
	// went away does not leave an order half decided.
	work context.Context

	vendorTokens *token.Authority
	fleetTokens  *token.Authority
	adminKeys    [][sha256.Size]byte
	tracking     *delivery.TrackingSigner

	vendorRoutes  routes
	privateRoutes routes
	operations    fasthttp.RequestHandler // /metrics, /healthz, /readyz

	// opened is nil until Redis has answered and the fleets are loaded.
	opened atomic.Pointer[ledger.Ledger]
	// draining is set by the shutdown: not ready, and every response closes.
	draining atomic.Bool
	faults   faultLog
	// vendorCrowd and privateCrowd bound the requests in work of each listener.
	vendorCrowd, privateCrowd crowd
	fleetCrowds               fleetCrowds
	// logins bounds the logins of both, so that guesses take no places of requests.
	logins crowd
}

// newGateway judges nothing but the keys; the ledger is opened by connect.
func newGateway(work context.Context, s settings, keys secrets, log *slog.Logger, registry *prometheus.Registry) (*gateway, error) {
	g := &gateway{
		settings: s, secrets: keys, log: log, work: work,
		metrics:  newMetrics(registry),
		scripts:  service.ScriptDurations(registry),
		registry: registry,
		tracking: keys.TrackingKeys.Signer(),
	}
	g.vendorCrowd.bound(s.VendorAPI.MaxInFlight, g.metrics.shed.WithLabelValues(vendorListener))
	g.logins.bound(maxLogins, nil)
	g.privateCrowd.bound(s.PrivateAPI.MaxInFlight, g.metrics.shed.WithLabelValues(privateListener))
	for _, key := range config.SplitSecrets(keys.AdminKey) {
		g.adminKeys = append(g.adminKeys, sha256.Sum256([]byte(key)))
	}
	var err error
	if g.tracer, err = tracing.Open(work, s.Tracing, "gateway", s.Environment, log); err != nil {
		return nil, err
	}
	if g.vendorTokens, err = token.NewAuthority(keys.TokenKeys, token.Vendor, s.Environment); err != nil {
		return nil, err
	}
	if g.fleetTokens, err = token.NewAuthority(keys.TokenKeys, token.Fleet, s.Environment); err != nil {
		return nil, err
	}
	g.vendorRoutes = g.metrics.measure(append(vendorRoutes(), vendorDocumentation(s.VendorAPI.PublicURL)...))
	g.privateRoutes = g.metrics.measure(slices.Concat(adminRoutes(), fleetRoutes(), privateDocumentation(s.PrivateAPI.PublicURL)))
	g.operations = fasthttpadaptor.NewFastHTTPHandler(service.Handler(registry, g.ready, s.Pprof))
	return g, nil
}

// ledger is the open ledger; before it is open every request that needs it
// answers 503 SERVICE_UNAVAILABLE.
func (g *gateway) ledger() (*ledger.Ledger, error) {
	if l := g.opened.Load(); l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("the gateway is starting: %w", delivery.ErrUnavailable)
}

// ready says why this replica should get no requests; nil when it should.
func (g *gateway) ready(ctx context.Context) error {
	if g.draining.Load() {
		return errors.New("shutting down")
	}
	l := g.opened.Load()
	if l == nil {
		return errors.New("waiting for Redis")
	}
	return l.Ping(ctx)
}

// Pauses between attempts to reach Redis at the start.
const (
	firstOpenPause = 100 * time.Millisecond
	maxOpenPause   = 2 * time.Second
)

// connect opens the ledger and loads the fleets. It waits for Redis as long as
// it takes, with a line in the log for every try; what waiting cannot mend, such
// as another number of partitions than the ledger was started with, is returned.
func (g *gateway) connect(ctx context.Context) (*ledger.Ledger, error) {
	for pause := firstOpenPause; ; pause = min(2*pause, maxOpenPause) {
		l, err := g.open(ctx)
		if err == nil {
			g.opened.Store(l)
			g.log.Info("ready", "environment", l.Environment(), "partitions", l.Partitions(), "fleets", len(l.Fleets.Snapshot().All()))
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !errors.Is(err, delivery.ErrUnavailable) {
			return nil, err
		}
		g.log.Warn("waiting for Redis", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (g *gateway) open(ctx context.Context) (*ledger.Ledger, error) {
	connection := g.settings.ledgerConfig(g.secrets, g.log)
	connection.Observe = g.watchScript
	l, err := ledger.Open(ctx, connection)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	if err := l.Fleets.Load(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("load the fleets: %w", err), l.Close())
	}
	return l, nil
}

// maintain keeps the fleets fresh and the counts of refusals flowing until ctx
// ends.
func (g *gateway) maintain(ctx context.Context, l *ledger.Ledger) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Fleets.Watch(ctx) // only ever says that ctx ended
	}()
	tick := time.NewTicker(ledger.FlushMinutesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			<-done
			return
		case now := <-tick.C:
			if err := l.Limits.Flush(ctx, now); err != nil && ctx.Err() == nil {
				g.log.Warn("refusals per minute were not counted", "error", err)
			}
		}
	}
}
