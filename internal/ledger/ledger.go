// Package ledger is everything the service keeps in Redis: accounts, fleets,
// stores, orders, their limits and idempotency, the streams of events and
// couriers' updates, and the queues of webhooks.
//
// It owns the layout (keys.go), the records' encodings, and the scripts in
// lua/, each with its Go caller; what must be atomic is one script. It is the
// only importer of go-redis, and it works against a single Redis and against
// Redis Cluster with the same code: everything one script touches carries the
// tag of one partition.
//
// It refuses decisions: what a status update means, what a webhook looks like
// and when it is tried again is decided by package delivery, package webhook
// and the programs; the ledger compares and sets. It also refuses HTTP.
//
// Errors: refusals that a caller is told about are *delivery.Error; whatever
// goes wrong with Redis wraps delivery.ErrUnavailable; ErrConflict says that
// somebody else changed the record in between.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/singleflight"

	"vendorapi/internal/delivery"
)

// The library reports every failed connection on standard error; our callers
// report them once, with what they meant to do.
func init() { logging.Disable() }

// ErrConflict says that a record was changed by somebody else since it was
// read. Read it again and decide again.
var ErrConflict = errors.New("the record was changed in between")

// DefaultPartitions is the number of partitions of a new ledger whose
// configuration names none.
const DefaultPartitions = 16

// Config says which Redis, and how it is used.
type Config struct {
	// URL is redis://, rediss:// or unix://. For a cluster, name one or more
	// masters: redis://host1:port?addr=host2:port&addr=host3:port. Whether it
	// is a cluster is asked of the server.
	URL string
	// TLS are the certificates for rediss://.
	TLS TLSFiles
	// Environment is "production" or "sandbox"; every key carries it, so the
	// two never share a bucket or an order.
	Environment string
	// Partitions is fixed at the first start, 1 to 1024; a ledger that was
	// started with another number refuses to open. 0: what is stored, or
	// DefaultPartitions for a new ledger.
	Partitions int
	// PoolSize is the number of connections for requests; 0: the library's
	// default of ten per core.
	PoolSize int
	// Pipelines is how many connections all requests share, each written to and
	// read from at the same time, so that both sides handle many requests with
	// one system call. 0: every request has a connection to itself.
	Pipelines int
	// Secrets seals webhook secrets at rest. Only who registers or sends
	// webhooks needs it.
	Secrets SecretKeys
	// Log hears of what goes on in the background; nil: slog.Default().
	Log *slog.Logger
	// Observe gives each operation, such as "create_order", who watches its calls;
	// nil: nobody does.
	Observe func(operation string) CallObserver

	// Now and ClockKey take the place of the clocks in tests: this process's, and
	// that of the scripts, which then read microseconds since 1970 from that key
	// while it is there. nil and "": the system's and the server's.
	Now      func() time.Time
	ClockKey string

	edit func(file, text string) string // changes a Lua file's text; tests only
}

// CallObserver hears of every call of one operation when it has ended: the context
// it was made with, when it began, and its failure. It must not block. Calls that
// share a round trip are told of once.
type CallObserver func(ctx context.Context, began time.Time, err error)

// Ledger is the connection to Redis, with the calls of each consumer. It is safe
// for concurrent use.
type Ledger struct {
	*core
	Orders    Orders
	Lifecycle Lifecycle
	Limits    Limits
	Accounts  Accounts
	Fleets    Fleets
	Stores    Stores
	Webhooks  Webhooks
	Queue     Queue
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
	// Lifecycle moves orders on, for the status role.
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
	// Queue hands webhook events to the process that sends them.
	Queue struct{ *core }
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

// core is what all consumers share: the connections and what this process knows
// of the ledger.
type core struct {
	rdb        redis.UniversalClient // everything but what the other two do
	calls      redis.UniversalClient // single scripts, in pipelines if so configured
	readers    redis.UniversalClient // blocking reads, so that they never starve requests of connections
	cluster    bool
	env        string
	partitions []partition
	global     partition
	epoch      atomic.Uint32
	library    *library
	loading    singleflight.Group // of the library
	secrets    SecretKeys
	rates      *redis_rate.Limiter
	fleets     atomic.Pointer[FleetSnapshot]
	guards     sync.Map // *fleetGuard by FleetID, of fleets that there are
	receivers  receivers
	logins     logins
	// mostWaiting is mostWaiting; tests lower it.
	mostWaiting int
	now         func() time.Time
	minutes     minuteCounts
	activity    *activityCounts
	log         *slog.Logger
}

// Open connects, checks the ledger's partitions and reads its epoch. It fails
// with delivery.ErrUnavailable while Redis is away; callers try again. ErrTLS is
// not mended by that.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	l, err := open(ctx, cfg)
	if err != nil && distrust(err) {
		return nil, fmt.Errorf("%w: %s", ErrTLS, err.Error()) // and no longer ErrUnavailable
	}
	return l, err
}

func open(ctx context.Context, cfg Config) (*Ledger, error) {
	env, err := environmentLetter(cfg.Environment)
	if err != nil {
		return nil, err
	}
	if cfg.Partitions < 0 || cfg.Partitions > delivery.MaxPartitions {
		return nil, fmt.Errorf("partitions: %d is not within 1 to %d", cfg.Partitions, delivery.MaxPartitions)
	}
	c := &core{env: cfg.Environment, secrets: cfg.Secrets, log: cfg.Log, now: cfg.Now, activity: newActivityCounts(), mostWaiting: mostWaiting}
	l := &Ledger{c, Orders{c}, Lifecycle{c}, Limits{c}, Accounts{c}, Fleets{c}, Stores{c}, Webhooks{c}, Queue{c}, Streams{c}, Sessions{c}, Monitor{c}, Backup{c}, Audit{c}}
	if l.now == nil {
		l.now = time.Now
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	l.global = partition{number: -1, prefix: fmt.Sprintf("{%cg}", env)}
	if err := l.connect(ctx, cfg); err != nil {
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

func environmentLetter(environment string) (byte, error) {
	switch environment {
	case "production":
		return 'p', nil
	case "sandbox":
		return 's', nil
	}
	return 0, fmt.Errorf("environment %q is neither production nor sandbox", environment)
}

// connect opens the two clients. Redis is asked whether it is a cluster.
// Requests are retried once on a broken connection: every script may run twice.
func (l *core) connect(ctx context.Context, cfg Config) error {
	many, err := redis.ParseClusterURL(cfg.URL)
	if err == nil && len(many.Addrs) > 1 {
		if many.TLSConfig, err = cfg.TLS.secure(many.TLSConfig); err != nil {
			return err
		}
		l.openCluster(many, cfg)
		return nil
	}
	one, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return fmt.Errorf("redis url: %w", withoutURL(err))
	}
	if one.TLSConfig, err = cfg.TLS.secure(one.TLSConfig); err != nil {
		return err
	}
	configureSingle(one, cfg)
	client := redis.NewClient(one)
	info, err := client.Info(ctx, "cluster").Result()
	if err != nil {
		return errors.Join(fmt.Errorf("connecting to redis: %w", failure(err)), client.Close())
	}
	if many != nil && clusterEnabled(info) {
		many.TLSConfig = one.TLSConfig
		l.openCluster(many, cfg)
		return client.Close()
	}
	l.rdb = client
	blocking := *one
	blocking.PoolSize, blocking.MaxRetries = blockingConnections, noRetries
	l.readers = redis.NewClient(&blocking)
	return nil
}

// withoutURL is what is wrong with a URL that cannot be read, without any part of
// its text, which holds a password.
func withoutURL(err error) error {
	var quoting *url.Error
	if errors.As(err, &quoting) {
		return errors.New("it cannot be read; in a password / @ : # ? and % are written as %2F, %40, %3A, %23, %3F and %25")
	}
	// "redis: invalid database number: …": what follows is a piece of the URL.
	if about := strings.SplitN(err.Error(), ":", 3); len(about) == 3 {
		return errors.New(strings.TrimSpace(about[1]))
	}
	return err
}

// blockingConnections bounds the connections that wait in XREADGROUP: one per
// partition and role at the very most, with some to spare.
const blockingConnections = 2*delivery.MaxPartitions + 4

// noRetries: a blocking read that is repeated behind our back would strand the
// entries of the first reply; the feed repeats it itself.
const noRetries = -1

func clusterEnabled(info string) bool { return strings.Contains(info, "cluster_enabled:1") }

// noAnnouncements: those of a managed Redis Enterprise. Asking for them would cost
// every new connection a command that nobody else knows.
var noAnnouncements = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// configureSingle bounds how long a request waits for Redis.
func configureSingle(o *redis.Options, cfg Config) {
	o.PoolSize = cfg.PoolSize
	o.MaxRetries, o.DialerRetries = 1, 1
	o.DialTimeout = 2 * time.Second
	o.ReadTimeout = 3 * time.Second
	o.WriteTimeout = 3 * time.Second
	o.DisableIdentity = true
	o.MaintNotificationsConfig = noAnnouncements
}

func (l *core) openCluster(o *redis.ClusterOptions, cfg Config) {
	o.PoolSize = cfg.PoolSize
	o.MaxRetries, o.DialerRetries = 1, 1
	// Redirections in a row, and how often a broken connection is tried again;
	// longer patience is call.go's, which knows what it may repeat. A master that
	// hangs holds its calls for (1 + 1 + MaxRedirects) * ReadTimeout at most.
	o.MaxRedirects = 2
	// Without it, a master that has died is asked for a minute.
	o.ClusterStateReloadInterval = time.Second
	o.DialTimeout = 2 * time.Second
	o.ReadTimeout = 2 * time.Second
	o.WriteTimeout = 2 * time.Second
	o.DisableIdentity = true
	o.MaintNotificationsConfig = noAnnouncements
	blocking := *o
	blocking.PoolSize, blocking.MaxRetries = blockingConnections, noRetries
	l.cluster = true
	l.rdb = redis.NewClusterClient(o)
	l.readers = redis.NewClusterClient(&blocking)
}

// openPipelines lets single scripts share connections. Full duplex, because
// batches that wait for their answers before the next one leaves make a request
// wait longer at moderate load than they save (measured at 2,000 orders a
// second: 0.9 ms against 0.55, and 0.48 with a pool). What was under way on a
// connection that breaks is sent again, which every script allows. Closing the
// client closes it.
func (l *core) openPipelines(connections int) error {
	l.calls = l.rdb
	if connections == 0 {
		return nil
	}
	o := redis.DefaultBlockingAutoPipelineOptions()
	o.FullDuplex, o.NumShards = true, connections
	var pipeliner *redis.AutoPipeliner
	var err error
	switch client := l.rdb.(type) {
	case *redis.Client:
		pipeliner, err = client.AutoPipelineWithOptions(o)
	case *redis.ClusterClient:
		pipeliner, err = client.AutoPipelineWithOptions(o)
	}
	if err != nil {
		return fmt.Errorf("pipelines: %w", err)
	}
	l.calls = pipeliner
	return nil
}

// checkMeta compares what is fixed for ever with the configuration, and stores
// it at the first start. Two first starts at once agree: HSETNX decides.
func (l *core) checkMeta(ctx context.Context, cfg Config, env byte) error {
	key := l.global.prefix + "meta"
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
		return fmt.Errorf("reading the ledger's meta: %w", failure(err))
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

func metaNumber(values []any, i int) (int, error) {
	text, _ := values[i].(string)
	return strconv.Atoi(text)
}

// Close gives the connections back. What is in flight fails.
func (l *Ledger) Close() error {
	return errors.Join(l.rdb.Close(), l.readers.Close())
}

// Ping answers nil when Redis answers; of a cluster one master is enough: while
// another is being replaced, the accounts of the rest go on, and a balancer must
// not take every gateway away from them.
func (l *Ledger) Ping(ctx context.Context) error {
	many, ok := l.rdb.(*redis.ClusterClient)
	if !ok {
		if err := l.rdb.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("ping: %w", failure(err))
		}
		return nil
	}
	var answered atomic.Bool
	err := many.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		err := one.Ping(ctx).Err()
		if err == nil {
			answered.Store(true)
		}
		return err
	})
	if err != nil && !answered.Load() {
		return fmt.Errorf("ping: %w", failure(err))
	}
	return nil
}

// ServerTime is what Redis's clock shows, in a cluster one node's. It costs a
// round trip.
func (l Lifecycle) ServerTime(ctx context.Context) (time.Time, error) {
	now, err := l.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("the clock of Redis: %w", failure(err))
	}
	return now, nil
}

// Partitions is the number of partitions, numbered from 0.
func (l *Ledger) Partitions() int { return len(l.partitions) }

// Environment is "production" or "sandbox".
func (l *Ledger) Environment() string { return l.env }

// partitionOf is where everything of an account is kept.
func (l *core) partitionOf(account delivery.AccountID) partition {
	return l.partitions[partitionNumber(account, len(l.partitions))]
}

// partitionOfOrder is the partition that an order id names; false for an id that this
// ledger cannot have issued.
func (l *core) partitionOfOrder(id delivery.OrderID) (partition, bool) {
	if id.IsZero() || id.Partition() >= len(l.partitions) {
		return partition{}, false
	}
	return l.partitions[id.Partition()], true
}
