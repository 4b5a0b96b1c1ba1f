package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"path/filepath"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
)

// partitions is the number that production starts with.
const partitions = ledger.DefaultPartitions

// rig is what one measurement stands on: a Redis with production's durability,
// a ledger in it, vendors with their endpoints, and a worker that may run.
type rig struct {
	name    string
	dir     string
	redis   *stack.Redis
	ledger  *ledger.Ledger
	fleet   *delivery.Fleet
	vendors []*vendor
	worker  *worker
	counter *counter
	orders  int // created so far; makes their external ids
}

// key is the key that seals the webhooks' secrets, as WEBHOOK_KEYS has it.
type key [32]byte

func newKey() (k key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

const keyID = "bench"

func (k key) String() string { return keyID + ":" + base64.StdEncoding.EncodeToString(k[:]) }

// newRig starts Redis below the bench's folder and opens a ledger with a fleet;
// vendors follow, and a worker that is yet to start.
func (b *bench) newRig(ctx context.Context, name string, edits ...edit) (*rig, error) {
	r, err := b.openRig(ctx, name, edits...)
	if err != nil {
		return nil, err
	}
	if err := r.addFleet(ctx); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) addFleet(ctx context.Context) error {
	coverage, err := delivery.ParseCoverage([]byte(
		`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	if err != nil {
		return err
	}
	r.fleet = &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy",
		DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: coverage}
	return r.ledger.Fleets.Create(ctx, r.fleet, [32]byte{1})
}

// openRig starts Redis on whatever its folder holds.
func (b *bench) openRig(ctx context.Context, name string, edits ...edit) (*rig, error) {
	r := &rig{name: name, dir: filepath.Join(b.dir, name), counter: newCounter()}
	if err := r.open(ctx, b, edits); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) open(ctx context.Context, b *bench, edits []edit) (err error) {
	if r.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(r.dir, "redis")}); err != nil {
		return err
	}
	if err = r.openLedger(ctx, b.key); err != nil {
		return err
	}
	r.worker, err = newWorker(b.bin, r.dir, r.redis.URL, b.key, edits)
	return err
}

func (r *rig) openLedger(ctx context.Context, k key) (err error) {
	r.ledger, err = ledger.Open(ctx, ledger.Config{
		URL: r.redis.URL, Environment: "sandbox", Partitions: partitions, Pipelines: 4,
		Secrets: ledger.SecretKeys{Current: keyID, Keys: map[string][]byte{keyID: k[:]}},
		Log:     slog.New(slog.DiscardHandler),
	})
	return err
}

// stop ends everything; the data stays until the bench ends.
func (r *rig) stop() error {
	var err error
	if r.worker != nil {
		r.worker.Kill()
	}
	for _, v := range r.vendors {
		v.close()
	}
	if r.ledger != nil {
		err = r.ledger.Close()
	}
	if r.redis != nil {
		r.redis.Stop()
	}
	return err
}

// vendor is an account with one store and one endpoint.
type vendor struct {
	*endpoint
	account delivery.AccountID
	store   string
}

// addVendors registers n vendors whose endpoints behave alike, spread evenly
// over the partitions.
func (r *rig) addVendors(ctx context.Context, n int, m manner) ([]*vendor, error) {
	var added []*vendor
	for range n {
		addr := "127.0.0.1:0"
		if m == refuses {
			var err error
			if addr, err = stack.FreeAddr(); err != nil {
				return nil, err
			}
		}
		v := &vendor{endpoint: newEndpoint(addr, m, r.counter), account: accountIn(len(r.vendors) % partitions), store: "kadikoy-1"}
		r.vendors = append(r.vendors, v)
		if err := r.register(ctx, v); err != nil {
			return nil, fmt.Errorf("register a vendor: %w", err)
		}
		added = append(added, v)
	}
	return added, nil
}

// accountIn draws an account of the given partition.
func accountIn(partition int) delivery.AccountID {
	for {
		if id := delivery.NewAccountID(); partitionOf(id) == partition {
			return id
		}
	}
}

// partitionOf says again how the ledger spreads accounts, which is part of the
// stored layout; every order is checked against it.
func partitionOf(id delivery.AccountID) int {
	h := fnv.New64a()
	h.Write(id[:])
	return int(h.Sum64() % partitions)
}

// register writes the account, its store and its webhook, and opens the
// endpoint.
func (r *rig) register(ctx context.Context, v *vendor) error {
	account := &delivery.Account{ID: v.account, Name: "Vendor", CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
	// A limit that nothing here reaches, over a window so short that what it
	// remembers stays small beside what is measured.
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1_000_000, Seconds: 1}}
	if err := r.ledger.Accounts.Create(ctx, account, [32]byte{2}); err != nil {
		return err
	}
	if err := r.ledger.Stores.Write(ctx, &delivery.Store{
		Account: v.account, ExternalID: v.store, State: delivery.Active, TaxNumber: "1234567890", Name: "Kadıköy Şubesi",
		Phone: "2165550011", Address: "Moda Caddesi No: 1, Kadıköy", Point: delivery.Point{Latitude: 40.9816, Longitude: 29.0258},
		SubRegion: "Kadıköy", Fleet: r.fleet.ID, FleetName: r.fleet.Name, UpdatedAt: time.Now(),
	}); err != nil {
		return err
	}
	return r.openWebhook(ctx, v)
}

// openWebhook registers the vendor's address and begins to take webhooks there,
// unless the endpoint refuses them. The secret is issued with the first address.
func (r *rig) openWebhook(ctx context.Context, v *vendor) error {
	if v.manner != refuses {
		if err := v.bind(); err != nil {
			return err
		}
	}
	_, secret, err := r.ledger.Webhooks.SetURL(ctx, v.account, v.url())
	if err != nil {
		return err
	}
	if secret != "" {
		v.secret = []byte(secret)
	}
	if v.manner != refuses {
		v.accept()
	}
	return nil
}
