package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"vendorapi/gateway/docs"
	"vendorapi/gateway/token"
	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

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
	adminKeys    [][sha256.Size]byte
	tracking     *delivery.TrackingSigner

	vendorRoutes  routes
	privateRoutes routes
	operations    fasthttp.RequestHandler // /metrics, /healthz, /readyz

	// draining is set by the shutdown: not ready, and every response closes.
	draining atomic.Bool
	faults   faultLog
	// vendorLimiter and privateLimiter bound the requests in work of each listener.
	vendorLimiter, privateLimiter *inFlightLimiter
	fleetLimiters                 sync.Map // by delivery.FleetID
	// logins bounds the logins of both, so that guesses take no places of requests.
	logins *inFlightLimiter
}

// newGateway prepares a gateway; the ledger is opened by connect.
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
	}
	g.vendorLimiter = &inFlightLimiter{most: int64(s.VendorAPI.MaxInFlight), shed: g.metrics.shed.WithLabelValues(vendorListener)}
	g.privateLimiter = &inFlightLimiter{most: int64(s.PrivateAPI.MaxInFlight), shed: g.metrics.shed.WithLabelValues(privateListener)}
	g.logins = &inFlightLimiter{most: maxLogins}
	for _, key := range config.SplitSecrets(keys.AdminKey) {
		g.adminKeys = append(g.adminKeys, sha256.Sum256([]byte(key)))
	}
	if g.vendorTokens, err = token.NewAuthority(keys.TokenKeys, token.Vendor, s.Environment); err != nil {
		return nil, err
	}
	if g.fleetTokens, err = token.NewAuthority(keys.TokenKeys, token.Fleet, s.Environment); err != nil {
		return nil, err
	}
	g.vendorRoutes = g.metrics.measure(append(vendorRoutes(), documentationRoutes("", docs.Vendor(s.VendorAPI.PublicURL), "vendor")...))
	g.privateRoutes = g.metrics.measure(slices.Concat(adminRoutes(), fleetRoutes(),
		documentationRoutes("private_", docs.Private(s.PrivateAPI.PublicURL), "fleet", "admin")))
	g.operations = fasthttpadaptor.NewFastHTTPHandler(service.Handler(g.Registry, g.ready, s.Pprof))
	return g, nil
}

// ready says why this replica should get no requests; nil when it should.
func (g *gateway) ready(ctx context.Context) error {
	if g.draining.Load() {
		return errors.New("shutting down")
	}
	return g.Ready(ctx)
}
