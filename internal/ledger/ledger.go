// Package ledger keeps the service's data in Redis. Open a Ledger and use the calls of its fields,
// one for each consumer.
//
// What must be atomic is one Lua script, in the package of its caller, whose keys are all in one partition: the same code
// works with one Redis and with Redis Cluster. Every script can answer its own repetition.
//
// Refusals that a caller may see are *delivery.Error; whatever goes wrong with Redis wraps
// delivery.ErrUnavailable; ErrConflict means that somebody else changed the record.
package ledger

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
)

// Ledger is the connection to Redis. It is safe for concurrent use.
type Ledger struct {
	core *core.Client

	Orders    *orders.Orders
	Ownership *partitions.Ownership
	Limits    *limits.Limits
	Accounts  *accounts.Accounts
	Fleets    *accounts.Fleets
	Stores    *accounts.Stores
	Webhooks  *webhooks.Webhooks
	Streams   *partitions.Streams
	Sessions  *operations.Sessions
	Monitor   *operations.Monitor
	Backup    *operations.Backup
	Erasure   *operations.Erasure
	Audit     *audit.Trail
	Books     *operations.Books
}

// packages have the Lua operations of the ledger.
var packages = []core.Operations{
	limits.Operations,
	accounts.Operations,
	orders.Operations,
	partitions.Operations,
	webhooks.Operations,
}

// Open connects. Try again after delivery.ErrUnavailable, but not after ErrTLS, ErrEvicts or ErrNoLimit.
func Open(ctx context.Context, cfg core.Config) (*Ledger, error) {
	c, err := core.Open(ctx, cfg, packages...)
	if err != nil {
		return nil, err
	}
	return assemble(c), nil
}

// assemble gives each consumer its calls.
func assemble(c *core.Client) *Ledger {
	bounds := limits.New(c)
	accountList := accounts.NewAccounts(c, bounds)
	orderList := orders.NewOrders(c, bounds)
	sessions := operations.NewSessions(c)

	return &Ledger{
		core:      c,
		Orders:    orderList,
		Ownership: partitions.NewOwnership(c, bounds),
		Limits:    bounds,
		Accounts:  accountList,
		Fleets:    accounts.NewFleets(c),
		Stores:    accounts.NewStores(c, bounds),
		Webhooks:  webhooks.NewWebhooks(c, accountList, orderList),
		Streams:   partitions.NewStreams(c),
		Sessions:  sessions,
		Monitor:   operations.NewMonitor(c),
		Backup:    operations.NewBackup(c, accountList, sessions),
		Erasure:   operations.NewErasure(c),
		Audit:     audit.New(c),
		Books:     operations.NewBooks(c),
	}
}

// ID returns the ledger's id, which is drawn at its first start and never changes. A restored backup
// has that of the ledger that was copied. ClickHouse's database knows by it whose it is.
func (l *Ledger) ID() string { return l.core.ID }

// Close closes the connections. Calls in flight fail.
func (l *Ledger) Close() error {
	return l.core.Close()
}

// MasterOf returns the address of the server that has an account's keys.
func (l *Ledger) MasterOf(ctx context.Context, account delivery.AccountID) (addr string, err error) {
	return l.core.MasterOf(ctx, l.core.PartitionOf(account))
}

// MasterOfFleets returns the address of the server that has the keys of no account, those of the fleets
// among them.
func (l *Ledger) MasterOfFleets(ctx context.Context) (addr string, err error) {
	return l.core.MasterOf(ctx, l.core.Global)
}

// Ping is nil when Redis answers. One master of a cluster is enough: while another
// is replaced, a balancer must not remove every gateway.
func (l *Ledger) Ping(ctx context.Context) error {
	var answered atomic.Bool
	err := l.core.EachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		err := one.Ping(ctx).Err()
		answered.CompareAndSwap(false, err == nil)
		return err
	})

	if answered.Load() {
		return nil
	}

	return core.Failed("ping", err)
}

// ServerTime is Redis's clock, in a cluster that of a master that answers. It also learns how far this
// process's clock is ahead of it (Clock).
func (l *Ledger) ServerTime(ctx context.Context) (time.Time, error) { return l.core.ServerTime(ctx) }

// ClockAhead is by how much this process's clock is ahead of Redis's, as it was last compared
// (ServerTime, Fleets.Load); 0 for a difference that the way there may have made.
func (l *Ledger) ClockAhead() time.Duration { return l.core.ClockAhead() }

// Clock is Redis's time at an instant of this process's clock. Replicas whose clocks differ agree on
// it, so that none makes orders that have timed out already. Fleets.Refresh and ServerTime learn it.
func (l *Ledger) Clock(at time.Time) time.Time { return l.core.Clock(at) }

// Now is Redis's time at present, as Clock knows it.
func (l *Ledger) Now() time.Time { return l.core.Now() }

// CheckScripts returns ErrScriptsMissing when one of the servers is full and lacks the scripts. A
// program that asks at its start says what is wrong, instead of failing with each call. Other errors
// are left to the calls that follow.
func (l *Ledger) CheckScripts(ctx context.Context, servers []Server) error {
	return l.core.CheckScripts(ctx, servers)
}

// Partitions is the number of partitions, numbered from 0.
func (l *Ledger) Partitions() int { return len(l.core.Partitions) }

// ReplicasAwaited is how many of a master's replicas must confirm what is answered; 0: none.
func (l *Ledger) ReplicasAwaited() int { return l.core.Replicas }

// Cluster reports whether each partition must be read by itself.
func (l *Ledger) Cluster() bool { return l.core.IsCluster }

// Environment is "production" or "sandbox".
func (l *Ledger) Environment() string { return l.core.Environment }
