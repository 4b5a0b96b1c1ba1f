package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reconcile"
)

// newReconcileCommand is `reporting reconcile`.
func newReconcileCommand() *cobra.Command {
	var w wanted
	var scope reconcile.Scope
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare Redis with ClickHouse, order by order, and the control totals",
		Long: `Compare what Redis holds with what ClickHouse has, order by order and event by
event, and the sums of the reports. What differs is printed, and the command then
exits with status 1. With --fix it is exported again, and what could be repaired
is no error. Orders that have left Redis are judged by themselves and never
touched; orders that Redis never had are removed with --remove-unknown only, for
to a Redis that has lost its data everything is unknown.

Late deliveries, outcomes of webhooks and the names that stores had are not
compared: Redis keeps them for a day or not at all.

Without a day it compares the last 8 days, which is what Redis holds of ended
orders by default. Differences that are only a matter of time are waited for.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := w.read(&scope, time.Now()); err != nil {
				return err
			}
			return withBoth(c, func(ctx context.Context, l *ledger.Ledger, a *archive.Archive) error {
				return runReconcile(ctx, reconcile.New(l, a), scope, c.OutOrStdout())
			})
		},
	}
	f := c.Flags()
	f.StringVar(&w.day, "day", "", "one local day, such as 2026-11-01 (default: the last 8 days)")
	f.StringVar(&w.from, "from", "", "the first of several local days")
	f.StringVar(&w.to, "to", "", "the last of them (default: today)")
	f.StringVar(&w.account, "account", "", "one account's id (default: all)")
	f.BoolVar(&scope.Fix, "fix", false, "export again what differs")
	f.BoolVar(&scope.RemoveUnknown, "remove-unknown", false, "with --fix, also remove orders from ClickHouse that Redis never had")
	f.DurationVar(&scope.Patience, "wait", time.Minute, "how long to wait for the exporter to catch up")
	c.MarkFlagsMutuallyExclusive("day", "from")
	c.MarkFlagsMutuallyExclusive("day", "to")
	addConfigFlag(c)
	return c
}

// defaultDays are the days that are compared when none is named, today
// included: the default retention of Redis and today.
const defaultDays = 8

// wanted is what the flags say.
type wanted struct{ day, from, to, account string }

func (w *wanted) read(s *reconcile.Scope, now time.Time) (err error) {
	s.To = archive.BusinessDay(now)
	if w.to != "" {
		if s.To, err = parseDay("to", w.to); err != nil {
			return err
		}
	}
	s.From = s.To.AddDate(0, 0, 1-defaultDays)
	if w.from != "" {
		if s.From, err = parseDay("from", w.from); err != nil {
			return err
		}
	}
	if w.day != "" {
		if s.From, err = parseDay("day", w.day); err != nil {
			return err
		}
		s.To = s.From
	}
	if s.From.After(s.To) {
		return errors.New("--from: that is after --to")
	}
	if w.account != "" {
		if s.Account, err = delivery.ParseAccountID(w.account); err != nil {
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
	case d.Tied() && len(d.Differences) > 0:
		return text + fmt.Sprintf(", %d fixed", len(d.Differences))
	case d.Tied():
		return text + ", no difference"
	}
	return text + fmt.Sprintf(", %d differ", len(d.Differences))
}
