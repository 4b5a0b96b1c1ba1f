package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

const (
	// vendors is how many accounts the orders come from, one after the other:
	// enough that every partition, and every master of a cluster, gets its share.
	vendors = 48
	// connections is how many requests can be under way at once, as in the
	// in-process measurements.
	connections = 64
	// storeID is the one store of every vendor.
	storeID = "kadikoy-1"
)

// system is the programs, with vendors who order and a receiver of their
// webhooks in this process.
type system struct {
	*stack.Stack
	gateways    []*stack.Program
	vendorAddrs []string       // host:port of each gateway's Vendor API
	privateAddr string         // and of the first one's fleet API
	redises     []*stack.Redis // every master
	fleetToken  string
	tokens      []string // of the vendors
	orders      *orderBook
	hooks       *hooks
}

// Stop ends the programs first: the worker finishes what it sends.
func (s *system) Stop() {
	s.Stack.Stop()
	s.hooks.close()
}

// startSystem brings the programs up and opens the vendors' stores. Nothing
// moves but what the fleet API is told.
func (b *bench) startSystem(ctx context.Context, name, redisURL string) (s *system, err error) {
	bin := filepath.Join(b.dir, "bin")
	if err := stack.Build(ctx, bin); err != nil {
		return nil, err
	}
	started, err := stack.Start(ctx, stack.Options{
		DataDir: filepath.Join(b.dir, name), BinDir: bin, RedisURL: redisURL, Courier: "manual", Out: b.out,
	})
	if err != nil {
		return nil, err
	}
	s = &system{Stack: started}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	s.gateways = []*stack.Program{s.Gateway}
	if s.Redis != nil {
		s.redises = []*stack.Redis{s.Redis}
	}
	if s.hooks, err = listenForHooks(); err != nil {
		return nil, err
	}
	first, err := hostOf(s.Demo.BaseURL)
	if err != nil {
		return nil, err
	}
	s.vendorAddrs = []string{first}
	if s.privateAddr, err = hostOf(s.Demo.OpsURL); err != nil {
		return nil, err
	}
	if err = s.openStores(ctx); err != nil {
		return nil, fmt.Errorf("open the stores: %w", err)
	}
	s.orders = newOrderBook(s.tokens)
	return s, nil
}

func hostOf(origin string) (string, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// openStores creates the vendors, each with a store that the demo fleet has
// confirmed and a webhook of its own.
func (s *system) openStores(ctx context.Context) error {
	anyone := client.New("", 8)
	admin := anyone.As(s.Demo.OpsURL+"/api/admin/v1", s.Demo.AdminKey)
	fleet, err := anyone.As(s.Demo.OpsURL+"/api/fleet/v1", "").Login(ctx, "/token", s.Demo.Fleet.ClientID, s.Demo.Fleet.ClientSecret)
	if err != nil {
		return err
	}
	s.fleetToken = fleet.Bearer
	s.tokens = make([]string, vendors)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range s.tokens {
		group.Go(func() error { return s.openStore(ctx, i, admin, fleet) })
	}
	return group.Wait()
}

// wide are limits that nothing here reaches; the largest that the service
// takes.
var wide = map[string]any{"orders": map[string]any{
	"sustained": map[string]int{"count": 1_000_000, "seconds": 60},
	"burst":     map[string]int{"count": 1_000_000, "seconds": 10},
}}

func (s *system) openStore(ctx context.Context, i int, admin, fleet *client.Client) error {
	var account stack.DemoAccount
	body := map[string]any{"name": fmt.Sprintf("Vendor %d", i), "limits": wide}
	if err := admin.Call(ctx, http.MethodPost, "/accounts", body, &account); err != nil {
		return err
	}
	v, err := admin.As(s.Demo.BaseURL+"/api/vendor/v1", "").Login(ctx, "/token", account.ClientID, account.ClientSecret)
	if err != nil {
		return err
	}
	store := map[string]any{
		"taxNumber": "1234567890", "name": "Kadıköy Şubesi", "phone": "02165550011", "fleetId": s.Demo.Fleet.FleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}
	if err := v.Call(ctx, http.MethodPut, "/stores/"+storeID, store, nil); err != nil {
		return err
	}
	if err := fleet.Call(ctx, http.MethodPost, "/stores/"+account.AccountID+"/"+storeID+"/confirm", nil, nil); err != nil {
		return err
	}
	var hook stack.Webhook
	if err := v.Call(ctx, http.MethodPut, "/webhook", map[string]string{"url": s.hooks.url(i)}, &hook); err != nil {
		return err
	}
	s.tokens[i] = v.Bearer
	return s.hooks.add(i, hook.Secret)
}
