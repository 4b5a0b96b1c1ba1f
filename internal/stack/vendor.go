package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack/client"
)

// APIs are the three APIs of a running system: Vendor without a token, Admin and
// Fleet logged in as its operator and its demo fleet.
type APIs struct {
	Vendor, Admin, Fleet *client.Client
	FleetID              string
}

// Connect logs in with what demo.json holds, over the connections of c.
func (d *Demo) Connect(ctx context.Context, c *client.Client) (*APIs, error) {
	fleet, err := c.As(d.OpsURL+"/api/fleet/v1", "").Login(ctx, "/token", d.Fleet.ClientID, d.Fleet.ClientSecret)
	if err != nil {
		return nil, err
	}

	return &APIs{
		Vendor:  c.As(d.BaseURL+"/api/vendor/v1", ""),
		Admin:   c.As(d.OpsURL+"/api/admin/v1", d.AdminKey),
		Fleet:   fleet,
		FleetID: d.Fleet.FleetID,
	}, nil
}

// Unlimited are limits that no test and no load reaches: the largest that the
// service takes.
var Unlimited = map[string]any{
	"orders":      Limit(1_000_000, 60, 1_000_000, 10),
	"orderStatus": Limit(1_000_000, 60),
	"cancel":      Limit(1_000_000, 60),
	"stores":      Limit(1_000_000, 60, 1_000_000, 10),
}

// Limit is the body of a limit: a count and its seconds, and those of a burst.
func Limit(sustained ...int) map[string]any {
	window := func(w []int) map[string]int { return map[string]int{"count": w[0], "seconds": w[1]} }
	limit := map[string]any{"sustained": window(sustained)}
	if len(sustained) == 4 {
		limit["burst"] = window(sustained[2:])
	}
	return limit
}

// VendorOptions say how a vendor begins.
type VendorOptions struct {
	Name       string
	Limits     any    // the body of the admin API; nil: the specification's
	WebhookURL string // empty: no webhook
}

// Vendor is an account that is logged in, with one store. Its client is the Vendor
// API with its token.
type Vendor struct {
	*client.Client
	DemoAccount
	Store         string
	WebhookSecret string

	orders atomic.Int64
}

// OpenAccount creates an account without a store and logs it in. Limits are the
// body of the admin API; nil: the specification's.
func (a *APIs) OpenAccount(ctx context.Context, name string, limits any) (*Vendor, error) {
	account := map[string]any{"name": name}
	if limits != nil {
		account["limits"] = limits
	}

	v := &Vendor{}
	err := a.Admin.Call(ctx, http.MethodPost, "/accounts", account, &v.DemoAccount)
	if err != nil {
		return nil, err
	}

	v.Client, err = a.Vendor.Login(ctx, "/token", v.ClientID, v.ClientSecret)

	return v, err
}

// OpenVendor creates an account and takes its store to Active.
func (a *APIs) OpenVendor(ctx context.Context, o VendorOptions) (*Vendor, error) {
	v, err := a.OpenAccount(ctx, o.Name, o.Limits)
	if err != nil {
		return nil, err
	}

	v.Store = "branch-1"
	if err := v.Call(ctx, http.MethodPut, "/stores/"+v.Store, StoreBody(a.FleetID), nil); err != nil {
		return nil, err
	}

	confirmed, err := a.Fleet.Do(ctx, http.MethodPost, "/stores/"+v.AccountID+"/"+v.Store+"/confirm", nil)
	if err == nil && confirmed.Code != "STORE_NOT_PENDING" { // the sandbox courier may have been faster
		err = confirmed.Err()
	}

	if err != nil {
		return nil, err
	}

	if o.WebhookURL != "" {
		v.WebhookSecret, err = v.SetWebhook(ctx, o.WebhookURL)
	}

	return v, err
}

// OpenVendors opens n vendors, eight at a time.
func (a *APIs) OpenVendors(ctx context.Context, n int, options func(i int) VendorOptions) ([]*Vendor, error) {
	vendors := make([]*Vendor, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range vendors {
		group.Go(func() (err error) {
			vendors[i], err = a.OpenVendor(ctx, options(i))
			if err != nil {
				err = fmt.Errorf("vendor %d: %w", i, err)
			}
			return err
		})
	}

	return vendors, group.Wait()
}

// SetWebhook registers a URL and returns the secret, which is shown the first time
// only.
func (v *Vendor) SetWebhook(ctx context.Context, url string) (secret string, err error) {
	var set Webhook
	err = v.Call(ctx, http.MethodPut, "/webhook", map[string]string{"url": url}, &set)
	return set.Secret, err
}

// StoreBody is a valid store of a fleet.
func StoreBody(fleetID string) map[string]any {
	return map[string]any{
		"taxNumber": "1234567890", "name": "Moda Şubesi", "phone": "02165550011", "fleetId": fleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}
}

// Order is a valid body with a fresh external id; change, unless nil, is applied to
// it.
func (v *Vendor) Order(change func(map[string]any)) map[string]any {
	o := map[string]any{
		"externalStoreId": v.Store,
		"externalOrderId": fmt.Sprintf("E-%d", v.orders.Add(1)),
		"recipient":       map[string]any{"name": "Ayşe Kaya", "phone": "05321234567"},
		"dropoff":         map[string]any{"text": "Bahariye Caddesi No: 2, Kadıköy", "latitude": 40.9880, "longitude": 29.0300},
		"orderAmount":     json.Number("249.90"),
		"payment":         map[string]any{"type": "Cash", "collectionAmount": json.Number("249.90")},
	}

	if change != nil {
		change(o)
	}

	return o
}
