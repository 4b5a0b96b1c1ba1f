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

// system is the programs of one case, with vendors whose stores are open.
type system struct {
	*stack.Stack
	redis     *stack.Redis
	sheet     *sheet
	addr      string // host:port of the Vendor API
	workerOps string // and of the worker's health and metrics
	vendors   []*vendor
	numbers   numbers
	admin     *client.Client
	fleet     *client.Client
}

// start brings the programs up. wide vendors have limits on orders out of reach,
// the ordinary ones behind them those of the spec; all may read as they like.
func (r *run) start(ctx context.Context, name string, o stack.Options, wide, ordinary int) (*system, error) {
	o.DataDir, o.BinDir = filepath.Join(r.dir, name), r.bin
	if o.Courier == "" {
		o.Courier = "manual"
	}
	var err error
	if o.WorkerOpsAddr, err = stack.FreeAddr(); err != nil {
		return nil, err
	}
	started, err := stack.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &system{Stack: started, redis: started.Redis, sheet: &r.sheet, workerOps: o.WorkerOpsAddr}
	if err := s.open(ctx, wide, ordinary); err != nil {
		s.Stop()
		return nil, fmt.Errorf("open the stores: %w", err)
	}
	return s, nil
}

func (s *system) open(ctx context.Context, wide, ordinary int) error {
	base, err := url.Parse(s.Demo.BaseURL)
	if err != nil {
		return err
	}
	s.addr = base.Host
	anyone := client.New("", 4)
	s.admin = anyone.As(s.Demo.OpsURL+"/api/admin/v1", s.Demo.AdminKey)
	s.fleet, err = anyone.As(s.Demo.OpsURL+"/api/fleet/v1", "").Login(ctx, "/token", s.Demo.Fleet.ClientID, s.Demo.Fleet.ClientSecret)
	if err != nil {
		return err
	}
	s.vendors = make([]*vendor, wide+ordinary)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range s.vendors {
		group.Go(func() (err error) {
			s.vendors[i], err = s.openStore(ctx, i, i < wide)
			return err
		})
	}
	return group.Wait()
}

// outOfReach is the largest limit that the service takes.
var outOfReach = map[string]any{
	"sustained": map[string]int{"count": 1_000_000, "seconds": 60},
	"burst":     map[string]int{"count": 1_000_000, "seconds": 10},
}

func (s *system) openStore(ctx context.Context, i int, wide bool) (*vendor, error) {
	limits := map[string]any{"orderStatus": outOfReach}
	if wide {
		limits["orders"] = outOfReach
	}
	var account stack.DemoAccount
	body := map[string]any{"name": fmt.Sprintf("Vendor %d", i), "limits": limits}
	if err := s.admin.Call(ctx, http.MethodPost, "/accounts", body, &account); err != nil {
		return nil, err
	}
	api := s.admin.As(s.Demo.BaseURL+"/api/vendor/v1", "")
	logged, err := api.Login(ctx, "/token", account.ClientID, account.ClientSecret)
	if err != nil {
		return nil, err
	}
	store := map[string]any{
		"taxNumber": "1234567890", "name": "Kadıköy Şubesi", "phone": "02165550011", "fleetId": s.Demo.Fleet.FleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}
	if err := logged.Call(ctx, http.MethodPut, "/stores/"+storeID, store, nil); err != nil {
		return nil, err
	}
	// The sandbox courier, where it acts, may have been faster: that is a 409.
	a, err := s.fleet.Do(ctx, http.MethodPost, "/stores/"+account.AccountID+"/"+storeID+"/confirm", nil)
	if err == nil && !a.OK() && a.Code != "STORE_NOT_PENDING" {
		err = a.Err()
	}
	if err != nil {
		return nil, err
	}
	v := &vendor{account: account.AccountID, token: logged.Bearer, clientID: account.ClientID, secret: account.ClientSecret, wide: wide}
	v.compose()
	return v, nil
}

// api is the Vendor API as a vendor calls it one request at a time.
func (s *system) api(v *vendor) *client.Client {
	return s.admin.As(s.Demo.BaseURL+"/api/vendor/v1", v.token)
}

// upTo lists the vendors from first to before last.
func upTo(first, last int) []int {
	var all []int
	for i := first; i < last; i++ {
		all = append(all, i)
	}
	return all
}
