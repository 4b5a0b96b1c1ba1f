package ledger

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"vendorapi/internal/delivery"
)

// The library would report every failed connection on standard error.
func init() { logging.Disable() }

// Check checks what needs no Redis. Errors contain no part of the URL, which may hold a password.
func (c Config) Check() error {
	_, unknown := environmentLetter(c.Environment)
	var misfit error
	if c.Partitions < 0 || c.Partitions > delivery.MaxPartitions {
		misfit = fmt.Errorf("partitions: %d is not within 1 to %d", c.Partitions, delivery.MaxPartitions)
	}
	_, _, err := c.parseURL()
	return errors.Join(unknown, misfit, err)
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

// parseURL reads the URL for a cluster, and for one server unless it names several.
func (c *Config) parseURL() (many *redis.ClusterOptions, one *redis.Options, err error) {
	if many, err = redis.ParseClusterURL(c.URL); err != nil {
		many = nil
	}
	if many != nil && len(many.Addrs) > 1 {
		many.TLSConfig, err = c.TLS.secure(many.TLSConfig)
		return many, nil, err
	}
	if one, err = redis.ParseURL(c.URL); err != nil {
		return nil, nil, fmt.Errorf("redis url: %w", withoutURL(err))
	}
	one.TLSConfig, err = c.TLS.secure(one.TLSConfig)
	if many != nil {
		many.TLSConfig = one.TLSConfig
	}
	return many, one, err
}

// withoutURL describes an unreadable URL without quoting it.
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

// connect opens the clients. Redis is asked whether it is a cluster.
func (l *core) connect(ctx context.Context, cfg *Config) error {
	many, one, err := cfg.parseURL()
	if err != nil {
		return err
	}
	if one == nil {
		l.openCluster(many, cfg.PoolSize)
		return nil
	}
	// Requests are retried once on a broken connection: every script may run twice.
	one.PoolSize, one.MaxRetries, one.DialerRetries = cfg.PoolSize, 1, 1
	one.DialTimeout, one.ReadTimeout, one.WriteTimeout = 2*time.Second, 3*time.Second, 3*time.Second
	one.DisableIdentity, one.MaintNotificationsConfig = true, noAnnouncements
	client := redis.NewClient(one)
	info, err := client.Info(ctx, "cluster").Result()
	if err != nil {
		return errors.Join(failed("connecting to redis", err), client.Close())
	}
	if many != nil && strings.Contains(info, "cluster_enabled:1") {
		l.openCluster(many, cfg.PoolSize)
		return client.Close()
	}
	l.rdb = client
	blocking := *one
	blocking.PoolSize, blocking.MaxRetries = blockingConnections, noRetries
	l.readers = redis.NewClient(&blocking)
	return nil
}

// blockingConnections is more than one for each partition and role.
const blockingConnections = 2*delivery.MaxPartitions + 4

// noRetries: a repeated read would strand the entries of a lost reply.
const noRetries = -1

// noAnnouncements saves a command that only Redis Enterprise knows.
var noAnnouncements = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func (l *core) openCluster(o *redis.ClusterOptions, poolSize int) {
	o.PoolSize, o.MaxRetries, o.DialerRetries = poolSize, 1, 1
	// Longer repetitions are up to retry. A master that hangs holds its calls for
	// (1 + 1 + MaxRedirects) * ReadTimeout at most.
	o.MaxRedirects = 2
	// Without it, a master that has died is asked for a minute.
	o.ClusterStateReloadInterval = time.Second
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	o.DisableIdentity, o.MaintNotificationsConfig = true, noAnnouncements
	blocking := *o
	blocking.PoolSize, blocking.MaxRetries = blockingConnections, noRetries
	l.cluster = true
	l.rdb = redis.NewClusterClient(o)
	l.readers = redis.NewClusterClient(&blocking)
}

// openPipelines lets single scripts share connections. At 2,000 orders a second a request takes
// 0.55 ms in full duplex, 0.9 ms without it, 0.48 ms with a pool. What a broken connection loses is
// sent again.
func (l *core) openPipelines(connections int) error {
	l.calls = l.rdb
	if connections == 0 {
		return nil
	}
	o := redis.DefaultBlockingAutoPipelineOptions()
	o.FullDuplex, o.NumShards = true, connections
	pipeliner, err := l.rdb.(interface {
		AutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error)
	}).AutoPipelineWithOptions(o)
	if err != nil {
		return fmt.Errorf("pipelines: %w", err)
	}
	l.calls = pipeliner
	return nil
}

// TLSFiles are PEM files for a rediss:// URL.
type TLSFiles struct {
	CA        string // who may have signed the server's certificate; empty: the system's
	Cert, Key string // Cert and Key are the client's, both or none, read for every connection
}

// ErrTLS says that one side does not trust the other; trying again does not help.
var ErrTLS = errors.New("TLS with redis failed")

// secure completes the URL's TLS configuration; base is nil without TLS.
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

// isDistrust reports a TLS failure that waiting does not mend.
func isDistrust(err error) bool {
	var verification *tls.CertificateVerificationError
	var remote *net.OpError
	var header tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &remote) && remote.Op == "remote error"
}
