package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Simulated is a gateway without listeners.
type Simulated struct {
	g          *gateway
	connection ledger.Config
}

// NewSimulated prepares a gateway with the settings of a file.
func NewSimulated(work context.Context, file string, log *slog.Logger, change func(*ledger.Config)) (*Simulated, error) {
	var s settings
	if err := config.Load(file, &s); err != nil {
		return nil, err
	}
	s.Environment, s.SlowRequest, s.Redis.Pipelines = delivery.Sandbox, 0, 0
	ring := func(id string, c byte) config.Keyring {
		return config.Keyring{Current: id, Keys: map[string][]byte{id: bytes.Repeat([]byte{c}, config.KeySize)}}
	}
	keys := secrets{
		TokenKeys: ring("t1", 't'), TrackingKeys: delivery.TrackingKeys(ring("k1", 'k')), WebhookKeys: ring("w1", 'w'),
		AdminKey: "an-admin-key-of-some-length",
	}
	g, err := newGateway(work, s, keys, log)
	if err != nil {
		return nil, err
	}
	connection := s.ledgerConfig(keys, log)
	change(&connection)
	return &Simulated{g: g, connection: connection}, nil
}

// Run connects and does what a gateway does beside requests, until ctx ends.
func (s *Simulated) Run(ctx context.Context) error {
	l, err := s.g.connect(ctx, s.connection)
	if err != nil {
		return err
	}
	s.g.maintain(ctx, l)
	s.g.close()
	return nil
}

// Ready reports whether a balancer would send requests.
func (s *Simulated) Ready() bool { return s.g.Ledger() != nil }

// clock is the key of a request's time.Now.
type clock struct{}

// acquireContext lets a request begin by its gateway's clock, which is wrong at times.
func (g *gateway) acquireContext(ctx *fasthttp.RequestCtx, vendor bool) *requestContext {
	x := g.acquireContextOriginal(ctx, vendor)
	now, _ := ctx.UserValue(clock{}).(func() time.Time)
	l := g.Ledger()
	if now != nil && l != nil {
		x.began = now()
		x.now = l.Clock(x.began)
	}
	return x
}

// Do answers one request.
func (s *Simulated) Do(private bool, method, path, bearer, body string, header map[string]string) (status int, answered http.Header, answer []byte) {
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: simulation\r\n", method, path)
	if bearer != "" {
		fmt.Fprintf(&head, "Authorization: Bearer %s\r\n", bearer)
	}
	for name, value := range header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, value)
	}
	if body != "" {
		fmt.Fprintf(&head, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	head.WriteString("\r\n")

	var ctx fasthttp.RequestCtx
	ctx.Init(new(fasthttp.Request), &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, nil)
	ctx.SetUserValue(clock{}, s.connection.Now)
	if err := ctx.Request.Header.Read(bufio.NewReader(&head)); err != nil {
		panic(err) // it is composed here
	}
	if body != "" {
		ctx.Request.SetBodyStream(bytes.NewReader([]byte(body)), len(body))
	}
	if private {
		s.g.servePrivate(&ctx)
	} else {
		s.g.serve(&ctx, s.g.vendorRoutes, s.g.settings.VendorAPI.MaxBodyBytes, true)
	}

	answered = make(http.Header)
	for name, value := range ctx.Response.Header.All() {
		answered.Add(string(name), string(value))
	}
	return ctx.Response.StatusCode(), answered, bytes.Clone(ctx.Response.Body())
}
