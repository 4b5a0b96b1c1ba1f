package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
)

// The suites of webhooks and reporting make orders through the ledger, as the
// gateway and the status role do, because those are not what they measure.

// partitions is the number that production starts with.
const partitions = ledger.DefaultPartitions

// sealKey seals the webhooks' secrets, as WEBHOOK_KEYS has it.
type sealKey [32]byte

const sealKeyID = "bench"

func newSealKey() (k sealKey) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

func (k sealKey) String() string { return sealKeyID + ":" + base64.StdEncoding.EncodeToString(k[:]) }

func openLedger(ctx context.Context, redisURL string, k sealKey) (*ledger.Ledger, error) {
	return ledger.Open(ctx, ledger.Config{
		URL: redisURL, Environment: "sandbox", Partitions: partitions, Pipelines: 4,
		Secrets: ledger.SecretKeys{Current: sealKeyID, Keys: map[string][]byte{sealKeyID: k[:]}},
		Log:     slog.New(slog.DiscardHandler),
	})
}

func createFleet(ctx context.Context, l *ledger.Ledger) (*delivery.Fleet, error) {
	coverage, err := delivery.ParseCoverage([]byte(
		`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	if err != nil {
		return nil, err
	}
	fleet := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy",
		DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: coverage}
	return fleet, l.Fleets.Create(ctx, fleet, [32]byte{1})
}

// storeID is the one store of every account.
const storeID = "kadikoy-1"

// createAccount adds an account with an active store. Its limit is one that
// nothing here reaches, over a window so short that what it remembers stays small
// beside what is measured.
func createAccount(ctx context.Context, l *ledger.Ledger, id delivery.AccountID, fleet *delivery.Fleet, at time.Time) error {
	account := &delivery.Account{ID: id, Name: "Vendor", CreatedAt: at, Limits: delivery.DefaultLimits()}
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: delivery.MaxWindowCount, Seconds: 1}}
	if err := l.Accounts.Create(ctx, account, [32]byte{2}); err != nil {
		return err
	}
	return l.Stores.Write(ctx, &delivery.Store{
		Account: id, ExternalID: storeID, State: delivery.Active, TaxNumber: "1234567890", Name: "Kadıköy Şubesi",
		Phone: "2165550011", Address: "Moda Caddesi No: 1, Kadıköy", Point: delivery.Point{Latitude: 40.9816, Longitude: 29.0258},
		SubRegion: "Kadıköy", Fleet: fleet.ID, FleetName: fleet.Name, UpdatedAt: at,
	})
}

// createOrder creates an order as of a time; amount may be the zero value.
func createOrder(ctx context.Context, l *ledger.Ledger, account delivery.AccountID, fleet *delivery.Fleet, externalID string, at time.Time, amount delivery.Money) (delivery.Order, error) {
	draft := &delivery.OrderDraft{
		ExternalStoreID: storeID, ExternalOrderID: externalID, ReadyAt: at, OrderAmount: amount,
		Recipient: delivery.Recipient{Name: "Ayşe Kaya", Phone: "5321234567"},
		Dropoff:   delivery.Dropoff{Text: "Bahariye Caddesi No: 2, Kadıköy", Point: delivery.Point{Latitude: 40.9880, Longitude: 29.0300}},
	}
	if amount.Set {
		draft.Payment = delivery.Payment{Type: delivery.Cash, CollectionAmount: amount}
	}
	created, _, err := l.Orders.Create(ctx, &ledger.Creation{
		Account: account, Body: []byte(externalID), Now: at, Draft: draft,
		Candidates: []ledger.Candidate{{Terms: fleet.Terms(), Covers: true}},
	})
	if err != nil {
		return delivery.Order{}, fmt.Errorf("create an order: %w", err)
	}
	return *created.Order, nil
}

var (
	courier  = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5301234567", VehicleType: "Motorcycle"}
	location = delivery.Point{Latitude: 40.987, Longitude: 29.027}
)

// commitAll commits in one round trip.
func commitAll(ctx context.Context, l *ledger.Ledger, commits []ledger.Commit) error {
	results, err := l.Lifecycle.Commit(ctx, commits)
	if err = errors.Join(append(results, err)...); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// writeConfig writes the shipped settings of a program to a folder, with other
// values for some keys.
func writeConfig(dir, program string, values map[string]string) (path string, err error) {
	root, err := stack.ModuleDir()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, "configs", program+".yaml"))
	if err != nil {
		return "", err
	}
	for key, value := range values {
		line := regexp.MustCompile(`(?m)^( *` + regexp.QuoteMeta(key) + `:).*$`)
		if n := len(line.FindAll(content, -1)); n != 1 {
			return "", fmt.Errorf("the settings of %s: %s is in there %d times", program, key, n)
		}
		content = line.ReplaceAll(content, []byte("${1} "+value))
	}
	path = filepath.Join(dir, program+".yaml")
	return path, os.WriteFile(path, content, 0o600)
}

// startProfile writes two seconds of a program's CPU profile to the file of
// -profile, if that is wanted in this round: the last one. wait returns when it is
// written.
func (b *bench) startProfile(ctx context.Context, p *stack.Program, round int) (wait func() error) {
	if b.profile == "" || round != b.rounds-1 {
		return func() error { return nil }
	}
	var group errgroup.Group
	group.Go(func() error {
		file, err := os.Create(b.profile)
		if err == nil {
			err = errors.Join(get(ctx, p.OpsURL()+"/debug/pprof/profile?seconds=2", file), file.Close())
		}
		return err
	})
	return group.Wait
}

// profileSettings are the settings of a program that can be profiled.
func (b *bench) profileSettings() map[string]string {
	if b.profile == "" {
		return nil
	}
	return map[string]string{"pprof": "true"}
}

// get writes what a URL answers with 200.
func get(ctx context.Context, url string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, resp.StatusCode)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// column is one figure of every round.
func column[R any](rounds []R, of func(R) float64) (list []float64) {
	for _, r := range rounds {
		list = append(list, of(r))
	}
	return list
}

var errTimeout = errors.New("timeout")

// await returns when done, which is asked again and again, says so; errTimeout
// after the timeout.
func await(ctx context.Context, what string, timeout, every time.Duration, done func() (bool, error)) error {
	over := time.Now().Add(timeout)
	for {
		if is, err := done(); is || err != nil {
			return err
		}
		if time.Now().After(over) {
			return fmt.Errorf("%s: %w of %s", what, errTimeout, timeout)
		}
		if err := sleep(ctx, every); err != nil {
			return err
		}
	}
}

// sleep returns early, with the reason, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
