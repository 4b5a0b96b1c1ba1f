// Package ledger keeps the service's data in Redis. Open a Ledger and use the calls of its fields,
// one for each consumer.
//
// What must be atomic is one Lua script in lua/, whose keys are all in one partition: the same code
// works with one Redis and with Redis Cluster. Every script can answer its own repetition.
//
// Refusals that a caller may see are *delivery.Error; whatever goes wrong with Redis wraps
// delivery.ErrUnavailable; ErrConflict means that somebody else changed the record.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"vendorapi/internal/delivery"
)

// ErrConflict says that the record was changed since it was read.
var ErrConflict = errors.New("the record was changed in between")

// DefaultPartitions is the number of partitions of a new ledger.
const DefaultPartitions = 16

// Config says which Redis, and how it is used.
type Config struct {
	// URL is redis://, rediss:// or unix://. For a cluster, name one or more
	// masters: redis://host1:port?addr=host2:port&addr=host3:port.
	URL         string
	TLS         TLSFiles // for rediss://
	Environment string   // "production" or "sandbox"; every key carries it
	// Partitions is fixed at the first start, 1 to 1024; Open fails if it differs.
	// 0: what is stored, or DefaultPartitions.
	Partitions int
	PoolSize   int          // the number of connections for requests; 0: ten per core
	Pipelines  int          // how many connections all requests share. 0: each has one to itself.
	Secrets    SecretKeys   // seals webhook secrets at rest
	Log        *slog.Logger // nil: slog.Default()
	// Observe returns an operation's observer, as of "create_order"; optional.
	Observe func(operation string) CallObserver

	// Now and ClockKey replace the clocks in tests: this process's, and that of the
	// scripts, which read microseconds since 1970 from that key while it exists.
	Now      func() time.Time
	ClockKey string

	edit func(file, text string) string // changes a Lua file's text; tests only
}

// CallObserver gets each round trip when it has ended. It must not block.
type CallObserver func(ctx context.Context, began time.Time, err error)

// Ledger is the connection to Redis. It is safe for concurrent use.
type Ledger struct {
	*core
	Orders    Orders
	Lifecycle Lifecycle
	Ownership Ownership
	Limits    Limits
	Accounts  Accounts
	Fleets    Fleets
	Stores    Stores
	Webhooks  Webhooks
	Streams   Streams
	Sessions  Sessions
	Monitor   Monitor
	Backup    Backup
	Audit     Audit
}

// The consumers' calls.
type (
	// Orders creates, reads and cancels orders, and takes couriers' reports.
	Orders struct{ *core }
	// Lifecycle retires orders and trims streams.
	Lifecycle struct{ *core }
	// Limits counts the requests and logins of vendors.
	Limits struct{ *core }
	// Accounts are the vendors' accounts.
	Accounts struct{ *core }
	// Fleets are the courier fleets and their limits.
	Fleets struct{ *core }
	// Stores are the vendors' branches.
	Stores struct{ *core }
	// Webhooks are the vendors' endpoints, their attempts and replays.
	Webhooks struct{ *core }
	// Streams reads the streams of events and updates by consumer group.
	Streams struct{ *core }
	// Sessions are the panel's.
	Sessions struct{ *core }
	// Monitor is what operators watch.
	Monitor struct{ *core }
	// Backup copies Redis, and makes a restored copy fit to go on.
	Backup struct{ *core }
	// Audit compares what a settled ledger holds.
	Audit struct{ *core }
)

type core struct {
	rdb         redis.UniversalClient // everything but what the other two do
	calls       redis.UniversalClient // single scripts, in pipelines if so configured
	readers     redis.UniversalClient // blocking reads, so that they never starve requests of connections
	cluster     bool
	env         string
	partitions  []partition
	global      partition
	epoch       atomic.Uint32
	library     *library
	loading     singleflight.Group // of the library
	secrets     SecretKeys
	rates       *redis_rate.Limiter
	fleets      atomic.Pointer[FleetSnapshot]
	guards      sync.Map // *fleetGuard by FleetID, of fleets that there are
	logins      logins
	mostWaiting int           // mostWaiting; tests lower it
	unsentWait  time.Duration // unsentTimeout; tests lower it
	now         func() time.Time
	ahead       atomic.Int64 // this process's clock of Redis's, ns
	activity    *activityCounts
	log         *slog.Logger
}

// Open connects. Try again after delivery.ErrUnavailable, but not after ErrTLS.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	l, err := open(ctx, cfg)
	if err != nil && isDistrust(err) {
		return nil, fmt.Errorf("%w: %s", ErrTLS, err.Error()) // and no longer ErrUnavailable
	}
	return l, err
}

func open(ctx context.Context, cfg Config) (*Ledger, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	env, err := environmentLetter(cfg.Environment)
	if err != nil {
		return nil, err
	}
	c := &core{env: cfg.Environment, secrets: cfg.Secrets, log: cfg.Log, now: cfg.Now, activity: newActivityCounts(), mostWaiting: mostWaiting, unsentWait: unsentTimeout}
	l := &Ledger{c, Orders{c}, Lifecycle{c}, Ownership{c}, Limits{c}, Accounts{c}, Fleets{c}, Stores{c}, Webhooks{c}, Streams{c}, Sessions{c}, Monitor{c}, Backup{c}, Audit{c}}
	if l.now == nil {
		l.now = time.Now
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	l.global = partition{number: -1, prefix: fmt.Sprintf("{%cg}", env)}
	if err := l.connect(ctx, &cfg); err != nil {
		return nil, err
	}
	if l.library, err = newLibrary(&cfg, l.cluster); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := errors.Join(l.checkMeta(ctx, cfg, env), l.noteLibrary(ctx), l.openPipelines(cfg.Pipelines)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.rates = redis_rate.NewLimiter(l.rdb)
	return l, nil
}

// checkMeta compares what is fixed for ever, and stores it at the first start.
func (l *core) checkMeta(ctx context.Context, cfg Config, env byte) error {
	key := l.metaKey()
	wanted := cfg.Partitions
	if wanted == 0 {
		wanted = DefaultPartitions
	}
	pipe := l.rdb.Pipeline()
	pipe.HSetNX(ctx, key, "partitions", wanted)
	pipe.HSetNX(ctx, key, "format", recordFormat)
	pipe.HSetNX(ctx, key, "epoch", 1)
	known := pipe.HMGet(ctx, key, "partitions", "format", "epoch")
	if _, err := pipe.Exec(ctx); err != nil {
		return failed("reading the ledger's meta", err)
	}
	partitions, err := metaNumber(known.Val(), 0)
	if err != nil || partitions < 1 || partitions > delivery.MaxPartitions {
		return fmt.Errorf("the ledger's meta names %d partitions: %w", partitions, err)
	}
	if cfg.Partitions != 0 && partitions != cfg.Partitions {
		return fmt.Errorf("the ledger has %d partitions, the configuration asks for %d; the number is fixed at the first start", partitions, cfg.Partitions)
	}
	if format, err := metaNumber(known.Val(), 1); err != nil || format != recordFormat {
		return fmt.Errorf("the ledger's records have format %d, this program reads %d", format, recordFormat)
	}
	epoch, err := metaNumber(known.Val(), 2)
	if err != nil {
		return fmt.Errorf("the ledger's epoch: %w", err)
	}
	l.epoch.Store(uint32(epoch))
	for i, tag := range partitionTags(env, partitions) {
		l.partitions = append(l.partitions, partition{number: i, prefix: "{" + tag + "}"})
	}
	return nil
}

func (l *core) metaKey() string { return l.global.prefix + "meta" }

func metaNumber(values []any, i int) (int, error) {
	text, _ := values[i].(string)
	return strconv.Atoi(text)
}

// Close closes the connections. Calls in flight fail.
func (l *Ledger) Close() error {
	return errors.Join(l.rdb.Close(), l.readers.Close())
}

// Ping is nil when Redis answers. One master of a cluster is enough: while another
// is replaced, a balancer must not remove every gateway.
func (l *Ledger) Ping(ctx context.Context) error {
	var answered atomic.Bool
	err := l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		err := one.Ping(ctx).Err()
		answered.CompareAndSwap(false, err == nil)
		return err
	})
	if err != nil && !answered.Load() {
		return failed("ping", err)
	}
	return nil
}

// ServerTime is Redis's clock, in a cluster one node's.
func (l Lifecycle) ServerTime(ctx context.Context) (time.Time, error) {
	now, err := l.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, failed("the clock of Redis", err)
	}
	return now, nil
}

// clockTolerance is by how much clocks may differ and count as equal.
const clockTolerance = 500 * time.Millisecond

// compareClocks learns how far this process's clock is ahead of Redis's.
func (l *core) compareClocks(ctx context.Context) error {
	sent := time.Now()
	server, err := Lifecycle{l}.ServerTime(ctx)
	if err == nil {
		l.ahead.Store(int64(ahead(sent, time.Now(), server)))
	}
	return err
}

// ahead is 0 for a difference that the way to Redis and back may have made.
func ahead(sent, answered, server time.Time) time.Duration {
	way := answered.Sub(sent) / 2
	by := sent.Add(way).Sub(server)
	if by.Abs() < clockTolerance+way {
		return 0
	}
	return by
}

// Clock is Redis's time at an instant of this process's clock. Replicas whose clocks differ agree on
// it, so that none makes orders that have timed out already. Fleets.Load sets it.
func (l *core) Clock(at time.Time) time.Time { return at.Add(-time.Duration(l.ahead.Load())) }

// Partitions is the number of partitions, numbered from 0.
func (l *Ledger) Partitions() int { return len(l.partitions) }

// Cluster reports whether each partition must be read by itself.
func (l *Ledger) Cluster() bool { return l.cluster }

// Environment is "production" or "sandbox".
func (l *Ledger) Environment() string { return l.env }

func (l *core) partitionOf(account delivery.AccountID) partition {
	return l.partitions[partitionNumber(account, len(l.partitions))]
}

// partitionOfOrder is false for an order id that this ledger cannot have issued.
func (l *core) partitionOfOrder(id delivery.OrderID) (partition, bool) {
	if id.IsZero() || id.Partition() >= len(l.partitions) {
		return partition{}, false
	}
	return l.partitions[id.Partition()], true
}
