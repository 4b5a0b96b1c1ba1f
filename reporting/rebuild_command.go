package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
)

// newRebuildCommand is `reporting rebuild`.
func newRebuildCommand() *cobra.Command {
	var from string
	c := &cobra.Command{
		Use:   "rebuild --from 2026-11-01",
		Short: "Export again all that Redis still holds",
		Long: `Export again all that Redis still holds of orders created on or after a local day:
orders and their events, and of the last day also late deliveries and outcomes
of webhooks. It may run beside the exporter and may be repeated; a row is only
ever replaced by a later version of it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			begin, err := parseDay("from", from)
			if err != nil {
				return err
			}
			return withBoth(c, func(ctx context.Context, l *ledger.Ledger, a *archive.Archive) error {
				said := time.Now()
				done, err := export.Rebuild(ctx, l, a, begin, func(r export.Rebuilt) {
					if time.Since(said) > time.Second {
						said = time.Now()
						fmt.Fprintf(c.ErrOrStderr(), "rebuilt %d orders so far\n", r.Orders)
					}
				})
				fmt.Fprintf(c.OutOrStdout(), "rebuilt %d orders, %d events, %d late deliveries, %d outcomes of webhooks\n",
					done.Orders, done.Events, done.Late, done.Outcomes)
				return err
			})
		},
	}
	c.Flags().StringVar(&from, "from", "", "first local day, such as 2026-11-01")
	_ = c.MarkFlagRequired("from") // fails for an unknown flag only
	addConfigFlag(c)
	return c
}

// parseDay reads a local day.
func parseDay(flag, text string) (time.Time, error) {
	day, err := time.ParseInLocation(time.DateOnly, text, delivery.Istanbul)
	if err != nil {
		return time.Time{}, fmt.Errorf("--%s: %q is no day such as 2026-11-01", flag, text)
	}
	return day, nil
}
