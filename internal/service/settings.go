package service

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// CheckEnvironment validates the key "environment".
func CheckEnvironment(environment string) error {
	return config.Demand(environment == delivery.Production || environment == delivery.Sandbox, `environment: want "production" or "sandbox"`)
}

// Redis are the keys below "redis".
type Redis struct {
	URL        string `yaml:"url"`
	Partitions int    `yaml:"partitions"`
	PoolSize   int    `yaml:"pool_size"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	Durability string `yaml:"durability"` // durabilityLocal or durabilityReplica
	Replicas   int    `yaml:"replicas"`   // of each master, for durabilityReplica

	AllowEviction bool `yaml:"allow_eviction"` // whether a server may delete keys when its memory is full
}

// On whose disks what Redis answers must be.
const (
	durabilityLocal   = "local"
	durabilityReplica = "replica"
)

// Validate names the keys whose value is out of range.
func (r *Redis) Validate() error {
	return errors.Join(
		config.Demand(r.URL != "", "redis.url: missing"),
		config.Demand(r.Partitions >= 1 && r.Partitions <= delivery.MaxPartitions, "redis.partitions: want 1 to 1024"),
		config.Demand(r.PoolSize >= 0, "redis.pool_size: want 0 or more"),
		config.Demand(r.Durability == durabilityLocal || r.Durability == durabilityReplica, `redis.durability: want "local" or "replica"`),
		config.Demand(r.Replicas >= 1 && r.Replicas <= 5, "redis.replicas: want 1 to 5"))
}

// Ledger is the ledger's configuration for an environment.
func (r *Redis) Ledger(environment string, log *slog.Logger) ledger.Config {
	replicas := 0
	if r.Durability == durabilityReplica {
		replicas = r.Replicas
	}
	return ledger.Config{
		URL: r.URL, Replicas: replicas, TLS: ledger.TLSFiles{CA: r.CAFile, Cert: r.CertFile, Key: r.KeyFile},
		Environment: environment, Partitions: r.Partitions, PoolSize: r.PoolSize, Log: log,
		AllowEviction: r.AllowEviction,
	}
}

// Ops are the keys below "ops": the operators' listener.
type Ops struct {
	Addr  string `yaml:"addr"`
	Pprof bool   `yaml:"pprof"`
}

// Validate names the key whose value is out of range.
func (o *Ops) Validate() error {
	err := config.CheckAddr(o.Addr)
	return config.Demand(err == nil, fmt.Sprintf("ops.addr: %v", err))
}

// Log are the keys below "log".
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Validate names the keys whose value is unknown.
func (l *Log) Validate() error {
	err := new(slog.Level).UnmarshalText([]byte(l.Level))
	return errors.Join(
		config.Demand(err == nil, fmt.Sprintf("log.level: %q is none of debug, info, warn, error", l.Level)),
		config.Demand(l.Format == "text" || l.Format == "json", fmt.Sprintf("log.format: %q is neither text nor json", l.Format)))
}

// Limits of one text in a line of the log, in bytes.
const (
	maxLogged = 2000
	maxStack  = 16 << 10 // of a panic, whose text has the stack
)

// boundLogged cuts long texts and errors, so that nothing that is quoted in them, whoever sent it,
// fills the log.
func boundLogged(_ []string, a slog.Attr) slog.Attr {
	text := ""
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		text = value.String()
	case slog.KindAny:
		err, isError := value.Any().(error)
		if isError && err != nil {
			text = errorText(err)
		}
	default: // numbers and times are short
	}

	if len(text) <= maxLogged {
		return a
	}

	if strings.HasPrefix(text, "panic: ") {
		text = strings.ToValidUTF8(text[:min(len(text), maxStack)], " ") // with its line breaks
	} else {
		text = excerptOfBytes(text, maxLogged)
	}

	return slog.String(a.Key, text)
}

// errorText returns the text of an error, or none if Error panics, as that of a nil pointer may: the
// handlers of package slog then write what they write for such an error.
func errorText(err error) (text string) {
	defer func() { _ = recover() }()
	return err.Error()
}

// excerptOfBytes returns a delivery.Excerpt of at most limit bytes.
func excerptOfBytes(text string, limit int) string {
	const ellipsis = "…"
	// The rest is not looked at, so that a text of megabytes costs no more time.
	beginning := text[:min(len(text), utf8.UTFMax*limit)]
	excerpt := delivery.Excerpt(beginning, limit)
	if len(excerpt) <= limit {
		return excerpt
	}

	end := limit - len(ellipsis)
	for !utf8.RuneStart(excerpt[end]) {
		end--
	}

	return excerpt[:end] + ellipsis
}

// Logger writes to w as the valid settings say. It cuts what is very long.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // see Validate
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: boundLogged}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// CheckRoles wants at least one role and none but the known ones.
func CheckRoles(roles []string, known ...string) error {
	for _, role := range roles {
		if !slices.Contains(known, role) {
			return fmt.Errorf("%q is not one of %s", role, strings.Join(known, ", "))
		}
	}

	if len(roles) == 0 {
		return errors.New("none")
	}
	return nil
}

// Consumer names this process among those of its kind: the configured instance, or the
// host. It is the same after a restart, so that an exporter finds its own pending entries,
// and exporters must not share it.
func Consumer(instance string) (string, error) {
	if instance != "" {
		return instance, nil
	}

	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("instance: not set, and the host has no name: %w", err)
	}
	return host, nil
}
