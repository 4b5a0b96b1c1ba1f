// Program gateway answers the Delivery Vendor API to the internet, and the fleet
// and admin APIs on a private listener.
//
//	             +------------------------- gateway --------------------------+
//	vendors  --> | vendor_api   limits of connections, TLS                    |
//	             |   route -> headers -> token -> size -> JSON -> rules       |
//	             |                                             one script --> | --> Redis
//	fleets,  --> | private_api  /api/fleet/v1  stores, jobs, reports      --> | --> Redis
//	operators    |              /api/admin/v1  accounts, fleets, webhooks     |
//	balancer --> |              /healthz /readyz /metrics                     |
//	readers  --> | both         /docs and each API's openapi.yaml             |
//	             +------------------------------------------------------------+
//
// It owns everything about HTTP: routes, tokens, the envelope, how JSON is
// read, what is refused before Redis is asked. Replicas share nothing but keys
// and Redis; what a replica keeps (verified tokens, the fleets as of a moment
// ago) any other finds out for itself.
//
// It refuses decisions that others own: rules of orders and stores are package
// delivery's, limits and uniqueness the ledger's scripts', moves of orders the
// worker's. It sends no webhook. And it never ends because Redis is away: it
// waits, answers 503 with Retry-After, says so on /readyz, and goes on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run is the program without the process around it; it returns nil when ctx
// ended and every request in flight was answered. out is for what was asked for
// on the command line.
func run(ctx context.Context, args []string, out, logs io.Writer) error {
	asked, err := parseCommand(args, out, logs)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if asked.check {
		return checkConfig(asked.config, out)
	}
	var s settings
	if err := config.Load(asked.config, &s); err != nil {
		return err
	}
	if asked.health {
		return askHealth(ctx, &s)
	}
	keys, err := readSecrets()
	if err != nil {
		return err
	}
	log, err := service.NewLogger(logs, s.Log.Level, s.Log.Format)
	if err != nil {
		return err
	}
	if asked.reseal {
		return resealSecrets(ctx, &s, keys, log)
	}
	// Requests outlive ctx: they are let finish.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	g, err := newGateway(work, s, keys, log, service.NewRegistry())
	if err != nil {
		return err
	}
	fronts, err := g.listen()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.keep(ctx) })
	for _, f := range fronts {
		group.Go(func() error {
			if f.name == vendorListener {
				g.awaitOpening()
			}
			return f.serve()
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return g.shutDown(fronts)
	})
	return errors.Join(group.Wait(), g.close())
}

// resealSecrets ends the use of all webhook keys but the first.
func resealSecrets(ctx context.Context, s *settings, keys secrets, log *slog.Logger) error {
	connection := s.ledgerConfig(keys, log)
	connection.Pipelines = 0
	l, err := ledger.Open(ctx, connection)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	sealed, err := l.Webhooks.Reseal(ctx)
	log.Info("webhook secrets are sealed with the first key", "key", keys.WebhookKeys.Current, "sealed anew", sealed)
	return errors.Join(err, l.Close())
}

// openingPatience is longer than opening the ledger takes with Redis at hand.
const openingPatience = 2 * time.Second

// awaitOpening lets the first connections of a gateway that starts wait in the
// listener's queue until it can serve them: while gateways are replaced one after
// the other nobody is refused. With Redis away they are answered 503 after it.
func (g *gateway) awaitOpening() {
	end := time.Now().Add(openingPatience)
	for g.opened.Load() == nil && !g.draining.Load() && time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
	}
}

// keep opens the ledger and maintains what this replica knows until ctx ends.
func (g *gateway) keep(ctx context.Context) error {
	l, err := g.connect(ctx)
	if err == nil {
		g.maintain(ctx, l)
	} else if ctx.Err() == nil {
		return err
	}
	return nil
}

// lastFlush bounds what an orderly end waits for the last figures to be written.
const lastFlush = time.Second

// close writes the figures of the last seconds, gives the connections to Redis
// back and sends the last traces.
func (g *gateway) close() error {
	var failed error
	if l := g.opened.Load(); l != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.work), lastFlush)
		defer cancel()
		if err := l.Limits.Flush(ctx, time.Now()); err != nil {
			g.log.Warn("the last figures per minute were not counted", "error", err)
		}
		failed = l.Close()
	}
	// With a time of its own: a collector that is silent takes all of it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.work), lastFlush)
	defer cancel()
	if err := g.tracer.Close(ctx); err != nil {
		g.log.Warn("the last traces were not taken", "error", err)
	}
	return failed
}
