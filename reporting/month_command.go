package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/panel/auth"
)

func newMonthCommand() *cobra.Command {
	c := newCommand("month", cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() })
	c.AddCommand(newMonthStatusCommand(), newMonthVerifyCommand(), newMonthCorrectCommand(),
		newDecideCommand(closing.KindHold), newDecideCommand(closing.KindRelease), newDecideCommand(closing.KindClose))
	return c
}

// decision is who decides about months, and why.
type decision struct{ user, note string }

// signIn asks for the password.
func (d *decision) signIn(c *cobra.Command) error {
	people, err := auth.FromEnvironment()
	if err != nil {
		return err
	}
	password, err := askPassword(c.InOrStdin(), c.ErrOrStderr(), d.user, false)
	if err != nil {
		return err
	}
	return people.Check(d.user, password, auth.Closer)
}

// person is who is noted in the audit trail.
func (d *decision) person() closing.Person {
	return closing.Person{Name: d.user, Credential: "reporting month"}
}

func withBooks(c *cobra.Command, work func(ctx context.Context, b *closing.Books) error) error {
	return withStores(c, true, true, func(ctx context.Context, s stores) error {
		return work(ctx, closing.New(s.ledger, s.archive, s.log))
	})
}

// newDecideCommand is that of a kind of entries in the log: hold, release or close.
func newDecideCommand(kind string) *cobra.Command {
	var d decision
	c := newCommand(kind+" MONTH", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		m, err := closing.ParseMonth(args[0])
		if err != nil {
			return err
		}
		if err := d.signIn(c); err != nil {
			return err
		}
		return withBooks(c, func(ctx context.Context, b *closing.Books) error {
			return b.Audited(ctx, d.person(), kind, m, d.note, nil, func() error {
				e, err := b.Decide(ctx, kind, m, d.user, d.note, progressTo(c))
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: %s of %s by %s, entry %d\nseal %s\n", e.At.Format(time.DateTime), e.Kind, e.Month.Name(), e.By, e.Sequence, e.Seal)
				return nil
			})
		})
	})
	c.Flags().StringVar(&d.user, "user", "", "who you are: a user of the panel with the role closer, whose password is asked for")
	c.Flags().StringVar(&d.note, "note", "", "why")
	requireFlag(c, "user")
	addConfigFlag(c)
	return c
}

func newMonthStatusCommand() *cobra.Command {
	c := newCommand("status [MONTH]", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		return withBooks(c, func(ctx context.Context, b *closing.Books) error {
			l, err := b.Read(ctx)
			if err != nil {
				return err
			}
			m := l.NextMonth(b.Now())
			if len(args) > 0 {
				if m, err = closing.ParseMonth(args[0]); err != nil {
					return err
				}
			}
			list, err := b.Checklist(ctx, l, m)
			if err != nil {
				return err
			}
			return writeStatus(c.OutOrStdout(), l, m, list)
		})
	})
	addConfigFlag(c)
	return c
}

func writeStatus(w io.Writer, l *closing.Log, m closing.Month, list []closing.Check) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range l.Entries {
		e := &l.Entries[i]
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%.12s\t%s\n", e.Sequence, e.At.Format(time.DateTime), e.Month, e.Kind, e.By, e.Seal, e.Note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(l.Entries) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s: %s\n", m.Name(), l.State(m))
	if l.Closed(m) {
		return nil
	}
	for _, check := range list {
		mark := "yes  "
		switch {
		case check.NeedsNote:
			mark = "note "
		case !check.OK:
			mark = "NO   "
		}
		fmt.Fprintf(t, "  %s%s\t%s\n", mark, check.Name, check.Detail)
	}
	return t.Flush()
}

func newMonthCorrectCommand() *cobra.Command {
	var d decision
	var named []string
	c := newSettingsCommand("correct", func(c *cobra.Command) error {
		var ids []delivery.OrderID
		for _, text := range named {
			id, err := delivery.ParseOrderID(text)
			if err != nil {
				return fmt.Errorf("--order: %w", err)
			}
			ids = append(ids, id)
		}
		by := closing.Automatic
		if len(ids) > 0 {
			if d.user == "" || d.note == "" {
				return errors.New("--order needs --user and --note: who books it, and why")
			}
			if err := d.signIn(c); err != nil {
				return err
			}
			by = d.user
		}
		return withBooks(c, func(ctx context.Context, b *closing.Books) error {
			var booked []closing.Correction
			var left []closing.Unexplained
			correct := func() (err error) {
				booked, left, err = b.Correct(ctx, by, d.note, ids...)
				return err
			}
			var err error
			if len(ids) > 0 {
				err = b.Audited(ctx, d.person(), closing.KindCorrection, closing.MonthOf(b.Now()), d.note, ids, correct)
			} else {
				err = correct()
			}
			for i := range booked {
				fmt.Fprintln(c.OutOrStdout(), "booked:", booked[i].String())
			}
			for i := range left {
				fmt.Fprintln(c.OutOrStdout(), "not booked:", left[i].String())
			}
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%d orders of closed months have changed in a way that a person has to decide on (--order)", len(left))
			}
			if err == nil && len(booked) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing to correct")
			}
			return err
		})
	})
	c.Flags().StringVar(&d.user, "user", "", "with --order, who you are: a user of the panel with the role closer, whose password is asked for")
	c.Flags().StringVar(&d.note, "note", "", "with --order, why")
	c.Flags().StringArrayVar(&named, "order", nil, "an order (id) that is listed as not booked; may be repeated")
	return c
}

func newMonthVerifyCommand() *cobra.Command {
	return newSettingsCommand("verify", func(c *cobra.Command) error {
		return withStores(c, true, true, func(ctx context.Context, s stores) error {
			b := closing.New(s.ledger, s.archive, s.log)
			v, err := b.Verify(ctx, progressTo(c))
			if err != nil {
				return err
			}
			if targets, err := s.deliver.Open(); err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "delivered files are not compared:", err)
			} else {
				wrong, err := b.CheckDelivered(ctx, targets)
				if err != nil {
					return err
				}
				v.Findings = append(v.Findings, wrong...)
			}
			for _, text := range slices.Concat(v.Findings, v.Pending) {
				fmt.Fprintln(c.OutOrStdout(), text)
			}
			if len(v.Findings) > 0 {
				return errors.New(v.String())
			}
			fmt.Fprintln(c.OutOrStdout(), v)
			return nil
		})
	})
}
