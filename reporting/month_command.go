package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/reporting/closing"
)

func newMonthCommand() *cobra.Command {
	c := newCommand("month", cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() })
	c.AddCommand(
		newMonthStatusCommand(),
		newMonthDecisionCommand(closing.KindHold), newMonthDecisionCommand(closing.KindRelease), newMonthDecisionCommand(closing.KindClose),
		newMonthCorrectCommand(),
		newBooksDecisionCommand(closing.KindDispute), newBooksDecisionCommand(closing.KindSetAside),
		newMonthVerifyCommand(), newMonthRecoverCommand(),
	)

	return c
}

// person is who calls a command that signs in to the panel.
type person struct{ user, note string }

func (p *person) addFlags(c *cobra.Command, why string) {
	c.Flags().StringVar(&p.user, "user", "", "who you are: a user of the panel, whose password is asked for")
	if why != "" {
		c.Flags().StringVar(&p.note, "note", "", why)
	}
}

// atPanel signs in to the panel, does the work, and signs out.
func (p *person) atPanel(c *cobra.Command, work func(ctx context.Context, panel *panelClient) error) error {
	var settings settings
	if err := config.Load(c.Flag(configFlag).Value.String(), &settings); err != nil {
		return err
	}

	password, err := askPassword(c.InOrStdin(), c.ErrOrStderr(), p.user, false)
	if err != nil {
		return err
	}
	panel, err := signIn(c.Context(), settings.Panel.address(), p.user, password)
	if err != nil {
		return err
	}

	err = work(c.Context(), panel)

	return errors.Join(err, panel.signOut(context.WithoutCancel(c.Context())))
}

// newMonthDecisionCommand is that of a decision about a month: hold, release or close.
func newMonthDecisionCommand(kind string) *cobra.Command {
	var p person
	c := newCommand(kind+" MONTH", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		m, err := closing.ParseMonth(args[0])
		if err != nil {
			return err
		}

		return p.atPanel(c, func(ctx context.Context, panel *panelClient) error {
			d := closing.Decision{Kind: kind, Month: m, Note: p.note, Held: panel.held}
			task, err := panel.decide(ctx, d, progressTo(c))
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s of %s by %s, entry %d\nseal %s\n", kind, m.Name(), task.By, task.Sequence, task.Seal)
			return nil
		})
	})

	p.addFlags(c, "why")
	requireFlag(c, "user")
	addConfigFlag(c)

	return c
}

// newBooksDecisionCommand is that of a decision about rows that do not belong to the log.
func newBooksDecisionCommand(kind string) *cobra.Command {
	var p person
	c := newSettingsCommand(kind, func(c *cobra.Command) error {
		return p.atPanel(c, func(ctx context.Context, panel *panelClient) error {
			task, err := panel.decide(ctx, closing.Decision{Kind: kind, Note: p.note}, progressTo(c))
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s by %s, entry %d\nseal %s\n", kind, task.By, task.Sequence, task.Seal)
			return nil
		})
	})

	p.addFlags(c, "what is known of these rows")
	requireFlag(c, "user")

	return c
}

func newMonthStatusCommand() *cobra.Command {
	c := newCommand("status [MONTH]", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		var m closing.Month
		if len(args) > 0 {
			var err error
			m, err = closing.ParseMonth(args[0])
			if err != nil {
				return err
			}
		}

		return withBooks(c, func(ctx context.Context, b *closing.Books) error {
			return writeStatus(ctx, c.OutOrStdout(), b, m)
		})
	})

	addConfigFlag(c)

	return c
}

// writeStatus writes the log, what is being decided, and the state and checklist of a month; the zero Month is the
// one that is held or can be closed next.
func writeStatus(ctx context.Context, w io.Writer, b *closing.Books, m closing.Month) error {
	log, err := b.Read(ctx)
	if err != nil {
		return err
	}
	task, err := b.LastTask(ctx)
	if err != nil {
		return err
	}

	if m.IsZero() {
		m = log.NextMonth(b.Now())
	}

	if err := writeLog(w, log); err != nil {
		return err
	}

	writeTask(w, &task, b.Now())
	fmt.Fprintf(w, "%s: %s\n", m.Name(), log.State(m))

	mayBeChecked := log.Foreign.AreNone() && !log.Closed(m)
	if !mayBeChecked {
		return nil
	}

	checks, err := b.Checklist(ctx, log, m)
	if err != nil {
		return err
	}

	return writeChecklist(w, checks)
}

// writeLog writes the entries of the log, and the rows that do not belong to it.
func writeLog(w io.Writer, log *closing.Log) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range log.Entries {
		e := &log.Entries[i]
		month := ""
		if !e.Month.IsZero() {
			month = e.Month.String()
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%.12s\t%s\n", e.Sequence, e.At.In(delivery.Istanbul).Format(time.DateTime), month, e.Kind, e.By, e.Seal, e.Note)
	}

	if len(log.Entries) > 0 {
		fmt.Fprintln(t)
	}

	for _, text := range log.Foreign.Named() {
		fmt.Fprintln(t, "NOT OF THE LOG:", text)
	}

	return t.Flush()
}

func writeChecklist(w io.Writer, checks []closing.Check) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, check := range checks {
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

// writeTask says what is being decided; with the zero Task nothing.
func writeTask(w io.Writer, task *closing.Task, now time.Time) {
	isInProgress := task.ID != "" && !task.HasEnded()
	if !isInProgress {
		return
	}

	if task.IsInterrupted(now) {
		fmt.Fprintf(w, "the process that carried out the %s of %s has died; if it is not in the list it was not done\n", task.Kind, task.By)
		return
	}

	fmt.Fprintf(w, "in progress: the %s of %s since %s: %s\n", task.Kind, task.By, task.Began.In(delivery.Istanbul).Format(time.DateTime), task.Step)
}

func newMonthCorrectCommand() *cobra.Command {
	var p person
	var named []string
	var all bool
	c := newSettingsCommand("correct", func(c *cobra.Command) error {
		var orders []delivery.OrderID
		for _, text := range named {
			id, err := delivery.ParseOrderID(text)
			if err != nil {
				return fmt.Errorf("--order: %w", err)
			}
			orders = append(orders, id)
		}

		if len(orders) == 0 {
			return correctAutomatically(c, all)
		}
		if all {
			return errors.New("--all and --order exclude each other")
		}
		if p.user == "" || p.note == "" {
			return errors.New("--order needs --user and --note: who books it, and why")
		}

		return p.atPanel(c, func(ctx context.Context, panel *panelClient) error {
			return correctOrders(ctx, c, panel, closing.Decision{Kind: closing.KindCorrection, Note: p.note, Orders: orders})
		})
	})

	p.addFlags(c, "with --order, why")
	c.Flags().StringArrayVar(&named, "order", nil, "an order (id) that is listed as not booked; may be repeated")
	c.Flags().BoolVar(&all, "all", false, "compare every closed month as a whole, not only what was stored since the last night")

	return c
}

// correctOrders has the panel book orders in the name of the person who is signed in.
func correctOrders(ctx context.Context, c *cobra.Command, panel *panelClient, d closing.Decision) error {
	task, err := panel.decide(ctx, d, progressTo(c))
	if err != nil {
		return err
	}

	for _, line := range task.Lines {
		fmt.Fprintln(c.OutOrStdout(), line)
	}
	return reportLeft(c.OutOrStdout(), task.Booked, task.Left)
}

// correctAutomatically books what needs no person's decision, as it is done every night; with all, in every
// closed month as a whole.
func correctAutomatically(c *cobra.Command, all bool) error {
	return withBooks(c, func(ctx context.Context, b *closing.Books) error {
		correct := b.CorrectChanged
		if all {
			correct = func(ctx context.Context) (closing.Outcome, error) { return b.Correct(ctx, progressTo(c)) }
		}

		result, err := correct(ctx)
		for i := range result.Booked {
			fmt.Fprintln(c.OutOrStdout(), "booked:", result.Booked[i].String())
		}

		for i := range result.Waiting {
			fmt.Fprintln(c.OutOrStdout(), "not booked:", result.Waiting[i].String())
		}

		if err != nil {
			return err
		}

		return reportLeft(c.OutOrStdout(), len(result.Booked), len(result.Waiting))
	})
}

// reportLeft returns an error when orders wait for a person's decision, and says when there was nothing to book.
func reportLeft(out io.Writer, booked, left int) error {
	if left > 0 {
		return fmt.Errorf("%d orders of closed months have changed in a way that a person has to decide on (--order)", left)
	}
	if booked == 0 {
		fmt.Fprintln(out, "nothing to correct")
	}
	return nil
}

// withBooks opens the books in both databases.
func withBooks(c *cobra.Command, work func(ctx context.Context, b *closing.Books) error) error {
	return withStores(c, true, func(ctx context.Context, s stores) error {
		return work(ctx, closing.New(s.ledger, s.archive, s.booksKeys, s.log))
	})
}

func newMonthVerifyCommand() *cobra.Command {
	return newSettingsCommand("verify", func(c *cobra.Command) error {
		return withStores(c, true, func(ctx context.Context, s stores) error {
			b := closing.New(s.ledger, s.archive, s.booksKeys, s.log)
			v, err := b.Verify(ctx, progressTo(c))
			if err != nil {
				if v != nil {
					writeLines(c.OutOrStdout(), v.Findings)
				}
				return err
			}

			var unasked error // of targets that cannot be asked
			targets, err := s.deliver.Open()
			if err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "delivered files are not compared:", err)
			} else {
				var wrong []string
				wrong, unasked = b.CheckDelivered(ctx, targets)
				v.Findings = append(v.Findings, wrong...)
			}

			writeLines(c.OutOrStdout(), slices.Concat(v.Findings, v.Pending))
			if len(v.Findings) > 0 {
				return errors.Join(errors.New(v.String()), unasked)
			}

			fmt.Fprintln(c.OutOrStdout(), v)

			return unasked
		})
	})
}

func writeLines(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}

func newMonthRecoverCommand() *cobra.Command {
	var from closing.Recovery
	c := newCommand("recover [FILE...]", cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		for _, name := range args {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			found, err := closing.ManifestsIn(content)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}

			from.Manifests = append(from.Manifests, found...)
		}

		return withBooks(c, func(ctx context.Context, b *closing.Books) error {
			recovered, err := b.Recover(ctx, from, progressTo(c))
			for _, e := range recovered {
				fmt.Fprintf(c.OutOrStdout(), "recovered: entry %d, %s of %s\n", e.Sequence, e.Kind, e.Month)
			}

			if err == nil && len(recovered) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing is missing")
			}
			return err
		})
	})

	c.Flags().BoolVar(&from.TakeNewer, "newer", false, "take entries that are in neither database, because both were restored to an older state: the files must be those at the target")
	addConfigFlag(c)

	return c
}
