package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
)

// configFlag is the flag of every command but the engine's.
const configFlag = "config"

func addConfigFlag(c *cobra.Command) {
	c.Flags().String(configFlag, "configs/reporting.yaml", "the settings file")
}

// loadSettings reads what --config names, and makes the log it asks for.
func loadSettings(c *cobra.Command) (settings, *slog.Logger, error) {
	var s settings
	path, err := c.Flags().GetString(configFlag)
	if err != nil {
		return s, nil, err
	}
	if err := config.Load(path, &s); err != nil {
		return s, nil, err
	}
	log, err := service.NewLogger(c.ErrOrStderr(), s.Log.Level, s.Log.Format)
	return s, log, err
}

// Pauses between attempts to reach what is away.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// untilThere repeats work while what it needs is away; what waiting cannot mend
// is returned, and so is the end of ctx.
func untilThere(ctx context.Context, log *slog.Logger, what string, work func() error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := work()
		if err == nil || !errors.Is(err, delivery.ErrUnavailable) {
			return err
		}
		log.Warn("waiting for "+what, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// ledgerConfig is how reporting uses Redis.
func (s *settings) ledgerConfig(log *slog.Logger) ledger.Config {
	return ledger.Config{
		URL:         s.Redis.URL,
		TLS:         ledger.TLSFiles{CA: s.Redis.CAFile, Cert: s.Redis.CertFile, Key: s.Redis.KeyFile},
		Environment: s.Environment,
		Partitions:  s.Redis.Partitions,
		PoolSize:    s.Redis.PoolSize,
		Log:         log,
	}
}

func (s *settings) openLedger(ctx context.Context, log *slog.Logger) (*ledger.Ledger, error) {
	l, err := ledger.Open(ctx, s.ledgerConfig(log))
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return l, nil
}

// withArchive opens ClickHouse, brings the tables up to date and does the work.
func withArchive(c *cobra.Command, work func(ctx context.Context, a *archive.Archive, applied []string) error) error {
	set, _, err := loadSettings(c)
	if err != nil {
		return err
	}
	a, err := archive.Open(set.ClickHouse)
	if err != nil {
		return err
	}
	applied, err := a.Migrate(c.Context())
	if err == nil {
		err = work(c.Context(), a, applied)
	}
	return errors.Join(err, a.Close())
}

// withBoth opens the ledger, too.
func withBoth(c *cobra.Command, work func(context.Context, *ledger.Ledger, *archive.Archive) error) error {
	return withArchive(c, func(_ context.Context, a *archive.Archive, _ []string) error {
		return withLedger(c, func(ctx context.Context, l *ledger.Ledger) error { return work(ctx, l, a) })
	})
}

// withLedger opens the ledger alone.
func withLedger(c *cobra.Command, work func(context.Context, *ledger.Ledger) error) error {
	set, log, err := loadSettings(c)
	if err != nil {
		return err
	}
	l, err := set.openLedger(c.Context(), log)
	if err != nil {
		return err
	}
	return errors.Join(work(c.Context(), l), l.Close())
}
