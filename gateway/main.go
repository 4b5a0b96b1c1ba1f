// Command gateway answers the Delivery Vendor API to the internet, and the fleet
// and admin APIs on a private listener.
//
//	             +------------------------- gateway --------------------------+
//	vendors  --> | vendor_api   limits of connections, TLS                    |
//	             |   route -> headers -> token -> size -> JSON -> rules       |
//	             |                                             one script --> | --> Redis
//	fleets,  --> | private_api  /api/fleet/v1  stores, jobs, reports      --> | --> Redis
//	operators    |              /api/admin/v1  accounts, fleets, webhooks     |
//	balancer --> |              /healthz /readyz /metrics                     |
//	readers  --> | both         /docs and each API's OpenAPI document         |
//	             +------------------------------------------------------------+
//
// Replicas share nothing but keys and Redis. While Redis is unavailable the gateway
// waits, answers 503 with Retry-After, says so on /readyz, and goes on.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"golang.org/x/sync/errgroup"

	"vendorapi/gateway/docs"
	"vendorapi/gateway/token"
	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/service"
)

func main() { service.Main("gateway", run) }

const usage = `gateway answers the Delivery Vendor API, and on a private listener the fleet
and admin APIs with /metrics, /healthz and /readyz. SIGTERM ends it in order.

  gateway [flags]

Secrets come from the environment or, with _FILE behind the name, from a file:
TOKEN_KEYS, TRACKING_KEYS, WEBHOOK_KEYS, ADMIN_KEY and, optional, ADMIN_KEYS. The
settings file explains them and every setting, and names the variables that change one.

Flags:
`

func run(ctx context.Context, args []string, out, logs io.Writer) error {
	var s settings
	var keys secrets
	var reseal bool
	program := service.Program{
		Name: "gateway", Usage: usage, Settings: &s, Log: &s.Log,
		Flags: func(f *flag.FlagSet) {
			f.BoolVar(&reseal, "reseal", false, "seal every webhook secret with the first of WEBHOOK_KEYS, and end")
		},
		Health: func() (string, bool) { return s.PrivateAPI.Addr, s.PrivateAPI.TLSCertFile != "" },
		Secrets: func() (variables []string, err error) {
			keys, err = readSecrets()
			return secretNames, err
		},
		Check:    func() error { return s.check(keys) },
		Mistakes: func() (error, error) { return s.mistakes(keys) },
		Run: func(ctx context.Context, log *slog.Logger) error {
			if reseal {
				return resealSecrets(ctx, &s, keys, log)
			}
			return serve(ctx, s, keys, log)
		},
	}

	return program.Execute(ctx, args, out, logs)
}

// serve answers requests until ctx ends and every request in flight was answered.
func serve(ctx context.Context, s settings, keys secrets, log *slog.Logger) error {
	// Requests outlive ctx: they are let finish.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	g, err := newGateway(work, s, keys, log)
	if err != nil {
		return err
	}

	if s.Environment == delivery.Sandbox {
		log.Warn("this is a sandbox: packageNote's SIM: triggers act, and no order is a real one; ENVIRONMENT=production is the other")
	}

	fronts, err := g.listen()
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.keep(ctx, g.settings.ledgerConfig(g.secrets, g.Log)) })
	for _, f := range fronts {
		group.Go(func() error {
			if f.name != privateListener {
				g.waitReady()
			}
			return f.serve()
		})
	}

	group.Go(func() error {
		<-ctx.Done()
		return g.shutDown(fronts)
	})

	err = group.Wait()
	g.close()

	return err
}

func resealSecrets(ctx context.Context, s *settings, keys secrets, log *slog.Logger) error {
	connection := s.ledgerConfig(keys, log)
	connection.Pipelines = 0
	l, err := ledger.Open(ctx, connection)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}

	sealed, err := l.Webhooks.Reseal(ctx)
	if err == nil {
		log.Info("webhook secrets are sealed with the first key", "key", keys.WebhookKeys.Current, "sealed_again", sealed)
	}

	return errors.Join(err, l.Close())
}

// readyTimeout is longer than opening the ledger takes while Redis answers.
const readyTimeout = 2 * time.Second

// waitReady lets the first connections wait in the listener's queue until they can be
// served, so that a rolling restart refuses nobody.
func (g *gateway) waitReady() {
	end := time.Now().Add(readyTimeout)
	for g.Ledger() == nil && !g.draining.Load() && time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
	}
}

func (g *gateway) keep(ctx context.Context, connection ledger.Config) error {
	l, err := g.connect(ctx, connection)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}

	g.maintain(ctx, l)
	return nil
}

// connect waits for Redis. Its error is what waiting does not help against, such as another number
// of partitions.
func (g *gateway) connect(ctx context.Context, connection ledger.Config) (*ledger.Ledger, error) {
	connection.Observe = g.observeScript
	l, err := g.Connect(ctx, connection, func(ctx context.Context, l *ledger.Ledger) error { return l.Fleets.Load(ctx) })
	if err == nil {
		g.Log.Info("ready", "environment", l.Environment(), "partitions", l.Partitions(), "fleets", len(l.Fleets.Snapshot().All()))
	}
	return l, err
}

// maintain keeps the fleets fresh and writes the counts of refusals until ctx ends.
func (g *gateway) maintain(ctx context.Context, l *ledger.Ledger) {
	var watching sync.WaitGroup
	watching.Go(func() { service.WatchFleets(ctx, g.Log, l) })
	defer watching.Wait()
	service.Repeat(ctx, g.Log, limits.FlushMinutesEvery, "refusals per minute, or wrong admin keys, are not counted",
		"refusals and wrong admin keys are counted again", func(ctx context.Context) error {
			now := l.Now()
			return errors.Join(l.Limits.Flush(ctx, now), l.Fleets.FlushLimited(ctx), g.failedKeys.flush(ctx, l, now.Add(-limits.FlushMinutesEvery).Truncate(time.Minute)))
		})
}

// lastFlush bounds how long an orderly end waits for the last counts to be written.
const lastFlush = time.Second

func (g *gateway) close() {
	if l := g.Ledger(); l != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.work), g.lastFlush)
		defer cancel()
		if err := errors.Join(l.Limits.Flush(ctx, l.Now()), l.Fleets.FlushLimited(ctx), g.failedKeys.flush(ctx, l, l.Now().Add(time.Minute))); err != nil {
			g.Log.Warn("the last figures per minute were not counted", "error", err)
		}
	}

	g.Close(g.work)
}

// gateway answers requests. It holds no state that another replica needs: the
// keys are shared, and everything else is in the ledger.
type gateway struct {
	*service.Process
	settings settings
	secrets  secrets
	metrics  *metrics
	scripts  func(operation string) ledger.CallObserver
	// work is the context of calls to the ledger. It is the server's, not the
	// request's: a shutdown lets requests in flight finish, and a client that
	// disconnected does not leave an order half decided.
	work context.Context

	vendorTokens *token.Authority
	fleetTokens  *token.Authority
	adminKeys    []operatorKey
	failedKeys   *failedKeys
	tracking     *delivery.TrackingSigner

	vendorRoutes  routes
	fleetRoutes   routes
	privateRoutes routes
	operations    fasthttp.RequestHandler // /metrics, /healthz, /readyz

	// draining is set by the shutdown: not ready, and every response closes.
	draining atomic.Bool
	// Outages of the ledger and contention for a record are logged apart: neither hides the other.
	outages, contention faultLog
	// The limiters bound the requests in work of vendors, of fleets, and of operators.
	vendorLimiter, privateLimiter, adminLimiter *inFlightLimiter
	fleetLimiters                               sync.Map // by delivery.FleetID
	// accounts bounds the requests in work of each vendor.
	accounts *accountPlaces
	// logins bounds the logins of both whose secrets are not known to be right, so that guesses take
	// no places of requests. rightLogins bounds the right ones that found no place of requests.
	logins, rightLogins *inFlightLimiter
	// The budgets bound the bytes of bodies that requests hold.
	vendorBodies, privateBodies *bodyBudget

	slow faultLog // of slow requests

	// lastFlush bounds how long an orderly end waits for the last counts to be written, lingerTime how long a
	// connection that is closed reads on. They are the constants of the same names; tests set more.
	lastFlush, lingerTime time.Duration
}

func newGateway(work context.Context, s settings, keys secrets, log *slog.Logger) (*gateway, error) {
	process, err := service.NewProcess(work, "gateway", s.Environment, s.Tracing, log)
	if err != nil {
		return nil, err
	}

	g := &gateway{
		Process: process, settings: s, secrets: keys, work: work,
		metrics:  newMetrics(process.Registry),
		scripts:  service.ObserveScripts(process.Registry),
		tracking: keys.TrackingKeys.Signer(),

		lastFlush:  lastFlush,
		lingerTime: lingerTime,
	}

	g.vendorLimiter = &inFlightLimiter{most: int64(s.VendorAPI.MaxInFlight), shed: g.metrics.shed.WithLabelValues(vendorListener)}
	g.privateLimiter = &inFlightLimiter{most: int64(s.PrivateAPI.MaxInFlight), shed: g.metrics.shed.WithLabelValues(privateListener)}
	g.adminLimiter = &inFlightLimiter{most: maxAdmin, shed: g.privateLimiter.shed}
	g.accounts = &accountPlaces{most: int64(s.VendorAPI.MaxInFlightPerAccount), wait: placeWait, shed: g.metrics.shedAccounts}
	g.logins = &inFlightLimiter{most: maxLogins}
	g.rightLogins = &inFlightLimiter{most: maxLogins}
	g.vendorBodies = g.metrics.bodyBudget(vendorListener, s.VendorAPI.MaxBodyBytesInFlight)
	operatorBytes := s.PrivateAPI.MaxBodyBytesInFlight / operatorDivisor
	g.privateBodies = g.metrics.bodyBudget(privateListener, s.PrivateAPI.MaxBodyBytesInFlight-operatorBytes)
	g.privateBodies.operatorBytes = operatorBytes
	g.failedKeys = &failedKeys{process: audit.NewID(), counts: map[failedKey]int{}}
	for _, key := range config.SplitList(keys.AdminKey) {
		g.adminKeys = append(g.adminKeys, operatorKey{digest: sha256.Sum256([]byte(key))})
	}

	g.adminKeys = append(g.adminKeys, keys.NamedAdminKeys...)
	g.vendorTokens, err = token.NewAuthority(keys.TokenKeys, token.Vendor, s.Environment)
	if err != nil {
		return nil, err
	}
	g.fleetTokens, err = token.NewAuthority(keys.TokenKeys, token.Fleet, s.Environment)
	if err != nil {
		return nil, err
	}

	g.vendorRoutes = g.metrics.measure(append(vendorRoutes(), documentationRoutes("", docs.Vendor(s.VendorAPI.PublicURL), "vendor")...))
	g.fleetRoutes = g.metrics.measure(append(fleetRoutes(), documentationRoutes("private_", docs.Fleet(s.FleetAPI.PublicURL), "fleet")...))
	g.privateRoutes = g.metrics.measure(slices.Concat(adminRoutes(), fleetRoutes(),
		documentationRoutes("private_", docs.Private(s.PrivateAPI.PublicURL), "fleet", "admin")))
	g.measureFleets()
	g.operations = fasthttpadaptor.NewFastHTTPHandler(service.Handler(g.Registry, g.ready, s.Pprof))

	return g, nil
}

// ready says why this replica should get no requests; nil when it should.
func (g *gateway) ready(ctx context.Context) error {
	if g.draining.Load() {
		return errors.New("shutting down")
	}
	if err := g.Ready(ctx); err != nil {
		return err
	}

	fleets := g.Ledger().Fleets
	age := fleets.Age()
	if age > g.settings.FleetsStaleAfter && !fleets.CannotChange(ctx) {
		return fmt.Errorf("suspensions and revocations cannot be read; the last known ones are %s old", age.Round(time.Second))
	}

	return nil
}
