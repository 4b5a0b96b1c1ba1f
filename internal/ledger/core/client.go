// Package core is the connection to Redis on which the packages of the ledger stand: clients, scripts, keys,
// the form of records, streams, and what is to be done when a server does not answer.
package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
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
	PoolSize   int // the number of connections for requests; 0: ten per core
	Pipelines  int // how many connections all requests share. 0: each has one to itself.
	Replicas   int // how many replicas must have on their disks what Redis answers; 0: none
	// AllowEviction opens a server that may delete keys when its memory is full, with a warning.
	AllowEviction bool
	Secrets       SecretKeys   // seals webhook secrets at rest
	Log           *slog.Logger // nil: slog.Default()
	// Observe returns an operation's observer, as of "create_order"; optional.
	Observe func(operation string) CallObserver
	// SeenCertificate gets the end of the certificate that Redis shows, of each connection with
	// TLS; optional. It must not block.
	SeenCertificate func(ends time.Time)

	// Now and ClockKey replace the clocks in tests: this process's, and that of the
	// scripts, which read microseconds since 1970 from that key while it exists.
	Now      func() time.Time
	ClockKey string
	// Timeout is how long a single server may take to be connected to, and to take or answer a command; 0: 2 s to
	// connect, 3 s for the rest. A cluster ignores it. Only tests set it, whose machines may be slow.
	Timeout time.Duration
	// Hooks stand before every command of a single server, also those of Open; tests only.
	Hooks []redis.Hook

	Edit func(file, text string) string // changes a Lua file's text; tests only
}

// CallObserver gets each round trip when it has ended. It must not block.
type CallObserver func(ctx context.Context, began time.Time, err error)

// Client is the connection to Redis, on which the calls of all consumers stand.
type Client struct {
	Redis     redis.UniversalClient // everything but what the other two do
	calls     redis.UniversalClient // single scripts, in pipelines if so configured
	Readers   redis.UniversalClient // blocking reads, so that they never starve requests of connections
	IsCluster bool
	Rates     *redis_rate.Limiter

	Library *library
	loading singleflight.Group // of the library

	// What is fixed at the first start.
	Environment string
	ID          string // see Ledger.ID
	Partitions  []Partition
	Global      Partition

	Replicas int // Config.Replicas
	Secrets  SecretKeys
	Log      *slog.Logger

	LocalNow func() time.Time
	clockKey string       // Config.ClockKey
	Ahead    atomic.Int64 // by how much this process's clock is ahead of Redis's, ns

	// silent has, by address of a master, the end of its last question that was given up (isSilent).
	silent sync.Map

	// unreadableRecords has the keys of the stores and orders that are logged as unreadable.
	unreadableRecords sync.Map
}

// Open connects, and reads or stores what is fixed for ever. The error wraps delivery.ErrUnavailable where
// trying again may help; it is ErrTLS, ErrEvicts or ErrNoLimit where it does not.
func Open(ctx context.Context, cfg Config, packages ...Operations) (*Client, error) {
	c, err := connect(ctx, cfg, packages)
	if err != nil && isDistrust(err) {
		return nil, fmt.Errorf("%w: %s", ErrTLS, err.Error()) // and no longer ErrUnavailable
	}
	return c, err
}

func connect(ctx context.Context, cfg Config, packages []Operations) (*Client, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}

	env := cfg.Environment[0] // p or s, in every key
	l := &Client{
		Environment: cfg.Environment,
		Global:      Partition{Number: -1, Prefix: fmt.Sprintf("{%cg}", env)},
		Replicas:    cfg.Replicas,
		Secrets:     cfg.Secrets,
		Log:         cfg.Log,
		LocalNow:    cfg.Now,
		clockKey:    cfg.ClockKey,
	}
	if l.LocalNow == nil {
		l.LocalNow = time.Now
	}

	if l.Log == nil {
		l.Log = slog.Default()
	}

	if err := l.openClients(ctx, &cfg); err != nil {
		return nil, err
	}

	err := l.prepare(ctx, &cfg, packages)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}

	return l, nil
}

// prepare checks the servers, reads or stores what is fixed for ever, and opens the way for scripts.
func (l *Client) prepare(ctx context.Context, cfg *Config, packages []Operations) error {
	var err error
	l.Library, err = NewLibrary(cfg, packages, l.IsCluster)
	if err != nil {
		return err
	}

	if err := l.checkMemory(ctx, cfg.AllowEviction); err != nil {
		return err
	}
	if err := l.checkConfirming(ctx); err != nil {
		return err
	}

	err = errors.Join(l.checkMeta(ctx, *cfg, cfg.Environment[0]), l.noteOwnLibrary(ctx), l.openPipelines(cfg))
	if err != nil {
		return err
	}

	l.Rates = redis_rate.NewLimiter(l.Redis)

	return nil
}

// Close closes the connections. Calls in flight fail.
func (l *Client) Close() error {
	return errors.Join(l.Redis.Close(), l.Readers.Close())
}

// ledgerFormat is the form of keys and records, which a ledger is made with.
const ledgerFormat = 2

// checkMeta compares what is fixed for ever, and stores it at the first start. While the master of the meta is
// away, a copy says it.
func (l *Client) checkMeta(ctx context.Context, cfg Config, env byte) error {
	known, failure := l.readMeta(ctx, &cfg)
	if failure != nil {
		copied, found := l.metaCopy(ctx, env)
		if !found {
			return failure
		}
		l.Log.Warn("the master of the ledger's meta is away; a copy of it is used", "partitions", copied.partitions, "error", failure)
		known = []any{copied.partitions, copied.format, copied.id}
	}

	partitions, err := strconv.Atoi(Text(known[0]))
	if err != nil || partitions < 1 || partitions > delivery.MaxPartitions {
		return fmt.Errorf("the ledger's meta names %d partitions: %w", partitions, err)
	}

	if cfg.Partitions != 0 && partitions != cfg.Partitions {
		return fmt.Errorf("the ledger has %d partitions, the configuration asks for %d; the number is fixed at the first start", partitions, cfg.Partitions)
	}
	if format, err := strconv.Atoi(Text(known[1])); err != nil || format != ledgerFormat {
		return fmt.Errorf("the ledger has format %d, this program reads %d: another release has made it; start this one with an empty Redis", format, ledgerFormat)
	}

	l.ID = Text(known[2])
	for i, tag := range PartitionTags(env, partitions) {
		l.Partitions = append(l.Partitions, Partition{Number: i, Prefix: "{" + tag + "}"})
	}

	if l.IsCluster && failure == nil {
		l.copyMeta(ctx, env, fixedMeta{partitions: Text(known[0]), format: Text(known[1]), id: l.ID})
	}

	return nil
}

// readMeta reads partitions, format and id, and stores those that are missing. It writes nothing else: a Redis
// without memory refuses every write, also one that would change nothing.
func (l *Client) readMeta(ctx context.Context, cfg *Config) ([]any, error) {
	key := l.MetaKey()
	known, err := l.Redis.HMGet(ctx, key, "partitions", "format", "id").Result()
	if err != nil {
		return nil, Failed("reading the ledger's meta", err)
	}

	if !slices.Contains(known, nil) {
		return known, nil
	}

	pipe := l.Redis.Pipeline()
	pipe.HSetNX(ctx, key, "partitions", cmp.Or(cfg.Partitions, DefaultPartitions))
	pipe.HSetNX(ctx, key, "format", ledgerFormat)
	pipe.HSetNX(ctx, key, "id", rand.Text())
	read := pipe.HMGet(ctx, key, "partitions", "format", "id")
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, Failed("writing the ledger's meta", err)
	}

	return read.Val(), nil
}

func (l *Client) MetaKey() string { return l.Global.Prefix + "meta" }

func (l *Client) MasterOf(ctx context.Context, r Partition) (addr string, err error) {
	many, ok := l.Redis.(*redis.ClusterClient)
	if !ok {
		return l.Redis.(*redis.Client).Options().Addr, nil
	}

	master, err := many.MasterForKey(ctx, r.Prefix)
	if err != nil {
		return "", Failed("finding a master", err)
	}
	return master.Options().Addr, nil
}

// ServerTime is Redis's clock, in a cluster that of a master that answers. It also learns how far this
// process's clock is ahead of it (Clock).
func (l *Client) ServerTime(ctx context.Context) (time.Time, error) {
	sent := l.LocalNow()
	server, err := l.serverTime(ctx)
	if err != nil {
		return time.Time{}, err
	}
	l.Ahead.Store(int64(AheadBy(sent, l.LocalNow(), server)))
	return server, nil
}

func (l *Client) serverTime(ctx context.Context) (time.Time, error) {
	cluster, ok := l.Redis.(*redis.ClusterClient)
	if !ok {
		return l.TimeOf(ctx, l.Global)
	}

	times, err := OnBoards(ctx, l, "the clock of Redis", func(ctx context.Context, board string) (time.Time, error) {
		master, err := cluster.MasterForKey(ctx, board)
		if err != nil {
			return time.Time{}, err
		}
		return master.Time(ctx).Result()
	})
	if err != nil {
		return time.Time{}, err
	}

	return times[0], nil
}

// TimeOf is the clock of the server that has a partition's keys, and so that of the ids in its streams.
func (l *Client) TimeOf(ctx context.Context, r Partition) (time.Time, error) {
	if l.clockKey != "" {
		us, err := l.Redis.Get(ctx, l.clockKey).Int64()
		if !errors.Is(err, redis.Nil) {
			return time.UnixMicro(us), Failed("the clock of a test", err)
		}
	}

	cluster, ok := l.Redis.(*redis.ClusterClient)
	if !ok {
		now, err := l.Redis.Time(ctx).Result()
		return now, Failed("the clock of Redis", err)
	}

	master, err := cluster.MasterForKey(ctx, r.Prefix)
	if err != nil {
		return time.Time{}, Failed("the clock of Redis", err)
	}

	now, err := master.Time(ctx).Result()

	return now, Failed("the clock of Redis", err)
}

// ClockTolerance is by how much clocks may differ and count as equal.
const ClockTolerance = 500 * time.Millisecond

// AheadBy is 0 for a difference that the way to Redis and back may have made.
func AheadBy(sent, answered, server time.Time) time.Duration {
	way := answered.Sub(sent) / 2
	by := sent.Add(way).Sub(server)
	if by.Abs() < ClockTolerance+way {
		return 0
	}
	return by
}

// ClockAhead is by how much this process's clock is ahead of Redis's, as it was last compared
// (ServerTime, Fleets.Load); 0 for a difference that the way there may have made.
func (l *Client) ClockAhead() time.Duration { return time.Duration(l.Ahead.Load()) }

// Clock is Redis's time at an instant of this process's clock. Replicas whose clocks differ agree on
// it, so that none makes orders that have timed out already. Fleets.Refresh and ServerTime learn it.
func (l *Client) Clock(at time.Time) time.Time { return at.Add(-time.Duration(l.Ahead.Load())) }

// Now is Redis's time at present, as Clock knows it.
func (l *Client) Now() time.Time { return l.Clock(l.LocalNow()) }

func (l *Client) PartitionOf(account delivery.AccountID) Partition {
	return l.Partitions[PartitionNumber(account, len(l.Partitions))]
}

// PartitionOfOrder is false for an order id that this ledger cannot have issued.
func (l *Client) PartitionOfOrder(id delivery.OrderID) (Partition, bool) {
	if id.IsZero() || id.Partition() >= len(l.Partitions) {
		return Partition{}, false
	}
	return l.Partitions[id.Partition()], true
}

// The library would report every failed connection on standard error.
func init() { logging.Disable() }

// Check checks what needs no Redis. Errors contain no part of the URL, which may hold a password.
func (c Config) Check() error {
	var unknown, misfit error
	if c.Environment != delivery.Production && c.Environment != delivery.Sandbox {
		unknown = fmt.Errorf("environment %q is neither production nor sandbox", c.Environment)
	}

	if c.Partitions < 0 || c.Partitions > delivery.MaxPartitions {
		misfit = fmt.Errorf("partitions: %d is not within 1 to %d", c.Partitions, delivery.MaxPartitions)
	}

	_, _, err := c.parseURL()

	return errors.Join(unknown, misfit, err)
}

// parseURL reads the URL for a cluster, and for one server unless it names several.
func (c *Config) parseURL() (many *redis.ClusterOptions, one *redis.Options, err error) {
	many, err = redis.ParseClusterURL(c.URL)
	if err != nil {
		many = nil
	}

	if many != nil && len(many.Addrs) > 1 {
		many.TLSConfig, err = c.secure(many.TLSConfig)
		return many, nil, err
	}

	one, err = redis.ParseURL(c.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("redis url: %w", withoutURL(err))
	}

	one.TLSConfig, err = c.secure(one.TLSConfig)
	if many != nil {
		many.TLSConfig = one.TLSConfig
	}

	return many, one, err
}

// withoutURL describes an unreadable URL without quoting it.
func withoutURL(err error) error {
	if _, quoting := errors.AsType[*url.Error](err); quoting {
		return errors.New("it cannot be read; in a password / @ : # ? and % are written as %2F, %40, %3A, %23, %3F and %25")
	}

	// "redis: invalid database number: …": what follows is a piece of the URL.
	if about := strings.SplitN(err.Error(), ":", 3); len(about) == 3 {
		return errors.New(strings.TrimSpace(about[1]))
	}
	return err
}

// openClients opens the clients. Redis is asked whether it is a cluster.
func (l *Client) openClients(ctx context.Context, cfg *Config) error {
	many, one, err := cfg.parseURL()
	if err != nil {
		return err
	}

	if one == nil {
		l.openCluster(many, cfg)
		return nil
	}

	// Requests are retried once on a broken connection: every script may run twice.
	one.PoolSize, one.MaxRetries, one.DialerRetries = cfg.PoolSize, 1, 1
	one.DialTimeout, one.ReadTimeout, one.WriteTimeout = 2*time.Second, 3*time.Second, 3*time.Second
	if cfg.Timeout != 0 {
		one.DialTimeout, one.ReadTimeout, one.WriteTimeout = cfg.Timeout, cfg.Timeout, cfg.Timeout
	}

	one.DisableIdentity, one.MaintNotificationsConfig = true, noAnnouncements
	client := newClient(one, cfg)
	info, err := client.Info(ctx, "cluster").Result()
	if err != nil {
		return errors.Join(Failed("connecting to redis", err), client.Close())
	}

	if many != nil && strings.Contains(info, "cluster_enabled:1") {
		l.openCluster(many, cfg)
		return client.Close()
	}

	blocking := *one
	blocking.PoolSize, blocking.MaxRetries = blockingConnections, noRetries
	readers := newClient(&blocking, cfg)
	confirmBy(cfg.Replicas)(client)
	confirmBy(cfg.Replicas)(readers)
	l.Redis, l.Readers = client, readers

	return nil
}

func newClient(o *redis.Options, cfg *Config) *redis.Client {
	client := redis.NewClient(o)
	for _, hook := range cfg.Hooks {
		client.AddHook(hook)
	}
	return client
}

// blockingConnections is more than one for each partition and role.
const blockingConnections = 2*delivery.MaxPartitions + 4

// noRetries: a repeated read would strand the entries of a lost reply.
const noRetries = -1

// noAnnouncements saves a command that only Redis Enterprise knows.
var noAnnouncements = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func (l *Client) openCluster(o *redis.ClusterOptions, cfg *Config) {
	o.PoolSize, o.MaxRetries, o.DialerRetries = cfg.PoolSize, 1, 1
	// Longer repetitions are up to retry. A master that hangs holds its calls for
	// (1 + 1 + MaxRedirects) * ReadTimeout at most.
	o.MaxRedirects = 2
	// Without it, a master that has died is asked for a minute.
	o.ClusterStateReloadInterval = time.Second
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	o.DisableIdentity, o.MaintNotificationsConfig = true, noAnnouncements
	blocking := *o
	blocking.PoolSize, blocking.MaxRetries = blockingConnections, noRetries
	l.IsCluster = true
	rdb, readers := redis.NewClusterClient(o), redis.NewClusterClient(&blocking)
	rdb.OnNewNode(confirmBy(cfg.Replicas))
	readers.OnNewNode(confirmBy(cfg.Replicas))
	l.Redis, l.Readers = rdb, readers
}

// openPipelines lets single scripts share connections. At 2,000 orders a second a request takes
// 0.55 ms in full duplex, 0.9 ms without it, 0.48 ms with a pool. What a broken connection loses is
// sent again. Where replicas confirm, a connection waits for them after each batch: others go on
// meanwhile, of which each takes along all that has come in.
func (l *Client) openPipelines(cfg *Config) error {
	l.calls = l.Redis
	if cfg.Pipelines == 0 {
		return nil
	}

	o := redis.DefaultBlockingAutoPipelineOptions()
	if cfg.Replicas == 0 {
		o.FullDuplex, o.NumShards = true, cfg.Pipelines
	} else {
		o.Unordered, o.MaxConcurrentBatches = true, batchesUnconfirmed*cfg.Pipelines
	}

	pipeliner, err := l.Redis.(interface {
		AutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error)
	}).AutoPipelineWithOptions(o)
	if err != nil {
		return fmt.Errorf("pipelines: %w", err)
	}

	l.calls = pipeliner

	return nil
}

// batchesUnconfirmed is how many batches of a pipeline may wait for replicas at once.
const batchesUnconfirmed = 4

// TLSFiles are PEM files for a rediss:// URL.
type TLSFiles struct {
	CA        string // who may have signed the server's certificate; empty: the system's
	Cert, Key string // Cert and Key are the client's, both or none, read for every connection
}

// ErrTLS says that one side does not trust the other; trying again does not help.
var ErrTLS = errors.New("TLS with redis failed")

// secure completes the URL's TLS configuration; base is nil without TLS.
func (c *Config) secure(base *tls.Config) (*tls.Config, error) {
	config, err := c.TLS.secure(base)
	if config == nil || err != nil || c.SeenCertificate == nil {
		return config, err
	}

	config.VerifyConnection = func(state tls.ConnectionState) error {
		c.SeenCertificate(state.PeerCertificates[0].NotAfter)
		return nil
	}

	return config, nil
}

// secure is Config's, without its observer.
func (f TLSFiles) secure(base *tls.Config) (*tls.Config, error) {
	switch {
	case base == nil && f != (TLSFiles{}):
		return nil, errors.New("redis: certificates are configured, but the url does not begin with rediss://")
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("redis: a client's certificate and its key are needed together")
	case base == nil:
		return nil, nil
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("redis: the CA's certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("redis: %s holds no certificate in PEM form", f.CA)
		}
	}

	if f.Cert == "" {
		return config, nil
	}

	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		return &own, err
	}

	if _, err := config.GetClientCertificate(nil); err != nil {
		return nil, fmt.Errorf("redis: the client's certificate: %w", err)
	}

	return config, nil
}

// isDistrust reports a TLS failure that waiting does not help against.
func isDistrust(err error) bool {
	var verification *tls.CertificateVerificationError
	var remote *net.OpError
	var header tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &remote) && remote.Op == "remote error"
}
