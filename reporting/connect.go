package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
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
	if err == nil {
		err = config.Load(path, &s)
	}
	if err != nil {
		return s, nil, err
	}
	return s, s.Log.Logger(c.ErrOrStderr()), nil
}

// withArchive opens ClickHouse, brings the tables up to date and does the work.
func withArchive(c *cobra.Command, work func(ctx context.Context, a *archive.Archive, applied []string) error) error {
	s, _, err := loadSettings(c)
	if err != nil {
		return err
	}
	a, err := archive.Open(s.ClickHouse)
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
	s, log, err := loadSettings(c)
	if err != nil {
		return err
	}
	l, err := ledger.Open(c.Context(), s.Redis.Ledger(s.Environment, log))
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	return errors.Join(work(c.Context(), l), l.Close())
}
