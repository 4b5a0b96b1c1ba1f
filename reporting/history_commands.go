package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/reconcile"
)

func newMigrateCommand() *cobra.Command {
	return newSettingsCommand("migrate", func(c *cobra.Command) error {
		return withStores(c, false, true, func(_ context.Context, s stores) error {
			for _, name := range s.applied {
				fmt.Fprintln(c.OutOrStdout(), "applied", name)
			}
			if len(s.applied) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing to do")
			}
			return nil
		})
	})
}

func newRebuildCommand() *cobra.Command {
	var from string
	c := newSettingsCommand("rebuild --from 2026-11-01", func(c *cobra.Command) error {
		begin, err := parseDay("from", from)
		if err != nil {
			return err
		}
		return withStores(c, true, true, func(ctx context.Context, s stores) error {
			reported := time.Now()
			done, err := export.Rebuild(ctx, s.ledger, s.archive, begin, func(r export.Rebuilt) {
				if time.Since(reported) > time.Second {
					reported = time.Now()
					fmt.Fprintf(c.ErrOrStderr(), "rebuilt %d orders so far\n", r.Orders)
				}
			})
			fmt.Fprintf(c.OutOrStdout(), "rebuilt %d orders, %d events, %d late deliveries, %d outcomes of webhooks\n",
				done.Orders, done.Events, done.Late, done.Outcomes)
			return err
		})
	})
	c.Flags().StringVar(&from, "from", "", "first local day, such as 2026-11-01")
	requireFlag(c, "from")
	return c
}

// dayOr reads a local day unless the flag is not given.
func dayOr(flag, text string, otherwise time.Time) (time.Time, error) {
	if text == "" {
		return otherwise, nil
	}
	return parseDay(flag, text)
}

// parseDay reads a local day.
func parseDay(flag, text string) (time.Time, error) {
	day, err := time.ParseInLocation(time.DateOnly, text, delivery.Istanbul)
	if err != nil {
		return time.Time{}, fmt.Errorf("--%s: %q is no day such as 2026-11-01", flag, text)
	}
	return day, nil
}

func newReconcileCommand() *cobra.Command {
	var day, from, to, account string
	var scope reconcile.Scope
	c := newSettingsCommand("reconcile", func(c *cobra.Command) error {
		err := readScope(&scope, day, from, to, account)
		if err != nil {
			return err
		}
		return withStores(c, true, true, func(ctx context.Context, s stores) error {
			return runReconcile(ctx, reconcile.New(s.ledger, s.archive), scope, c.OutOrStdout())
		})
	})
	f := c.Flags()
	f.StringVar(&day, "day", "", "one local day, such as 2026-11-01 (default: the last 8 days)")
	f.StringVar(&from, "from", "", "the first of several local days")
	f.StringVar(&to, "to", "", "the last of them (default: today)")
	f.StringVar(&account, "account", "", "one account's id (default: all)")
	f.BoolVar(&scope.Fix, "fix", false, "export again what differs")
	f.BoolVar(&scope.RemoveUnknown, "remove-unknown", false, "with --fix, also remove orders from ClickHouse that Redis never had")
	f.DurationVar(&scope.Timeout, "wait", time.Minute, "how long to wait for the exporter to catch up")
	c.MarkFlagsMutuallyExclusive("day", "from")
	c.MarkFlagsMutuallyExclusive("day", "to")
	return c
}

// defaultDays are the days that are compared when none is named, today
// included: the default retention of Redis and today.
const defaultDays = 8

// readScope reads the flags that say what is compared.
func readScope(s *reconcile.Scope, day, from, to, account string) (err error) {
	if s.To, err = dayOr("to", to, archive.BusinessDay(time.Now())); err != nil {
		return err
	}
	if s.From, err = dayOr("from", from, s.To.AddDate(0, 0, 1-defaultDays)); err != nil {
		return err
	}
	if day != "" {
		if s.From, err = parseDay("day", day); err != nil {
			return err
		}
		s.To = s.From
	}
	if s.From.After(s.To) {
		return errors.New("--from: that is after --to")
	}
	if account != "" {
		if s.Account, err = delivery.ParseAccountID(account); err != nil {
			return fmt.Errorf("--account: %w", err)
		}
	}
	return nil
}

func runReconcile(ctx context.Context, r *reconcile.Reconciler, s reconcile.Scope, out io.Writer) error {
	left := 0
	err := r.Run(ctx, s, func(d *reconcile.Day) {
		for i := range d.Differences {
			fmt.Fprintln(out, d.Differences[i].String())
			if !d.Differences[i].Fixed {
				left++
			}
		}
		for _, t := range d.Totals {
			fmt.Fprintf(out, "%s %s\n", d.Day.Format(time.DateOnly), t)
			left++
		}
		fmt.Fprintf(out, "%s: %s\n", d.Day.Format(time.DateOnly), summary(d))
	})
	if err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d differences between Redis and ClickHouse", left)
	}
	return nil
}

func summary(d *reconcile.Day) string {
	text := fmt.Sprintf("%d orders compared", d.Compared)
	if d.Retired > 0 {
		text += fmt.Sprintf(", %d more have left Redis", d.Retired)
	}
	if d.Moving > 0 {
		text += fmt.Sprintf(", %d changed all the while", d.Moving)
	}
	switch {
	case !d.Balanced():
		return text + fmt.Sprintf(", %d differ", len(d.Differences))
	case len(d.Differences) > 0:
		return text + fmt.Sprintf(", %d fixed", len(d.Differences))
	}
	return text + ", no difference"
}
