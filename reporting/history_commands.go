package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/backup"
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
			progress := progressOf(c)
			done, err := export.Rebuild(ctx, s.ledger, s.archive, begin, func(r export.Rebuilt) { progress("orders rebuilt so far", r.Orders) })
			fmt.Fprintf(c.OutOrStdout(), "rebuilt %d orders, %d events, %d late deliveries, %d outcomes of webhooks\n",
				done.Orders, done.Events, done.Late, done.Outcomes)
			return err
		})
	})
	c.Flags().StringVar(&from, "from", "", "first local day, such as 2026-11-01")
	requireFlag(c, "from")
	return c
}

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
		if err := readScope(&scope, day, from, to, account); err != nil {
			return err
		}
		return withStores(c, true, true, func(ctx context.Context, s stores) error {
			left, out := 0, c.OutOrStdout()
			err := reconcile.New(s.ledger, s.archive).Run(ctx, scope, func(d *reconcile.Day) {
				left += d.Left() + len(d.Totals)
				for i := range d.Differences {
					fmt.Fprintln(out, d.Differences[i].String())
				}
				date := d.Day.Format(time.DateOnly)
				for _, t := range d.Totals {
					fmt.Fprintf(out, "%s %s\n", date, t)
				}
				fmt.Fprintf(out, "%s: %s\n", date, summary(d))
			})
			if err == nil && left > 0 {
				err = fmt.Errorf("%d differences between Redis and ClickHouse", left)
			}
			return err
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

func readScope(s *reconcile.Scope, day, from, to, account string) (err error) {
	read := func(flag, text string, into *time.Time) {
		if text != "" && err == nil {
			*into, err = parseDay(flag, text)
		}
	}
	s.To = archive.BusinessDay(time.Now())
	read("to", to, &s.To)
	s.From = s.To.AddDate(0, 0, 1-defaultDays)
	read("from", from, &s.From)
	if day != "" {
		read("day", day, &s.From)
		s.To = s.From
	}
	if err == nil && s.From.After(s.To) {
		err = errors.New("--from: that is after --to")
	}
	if err == nil && account != "" {
		if s.Account, err = delivery.ParseAccountID(account); err != nil {
			err = fmt.Errorf("--account: %w", err)
		}
	}
	return err
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

func newBackupCommand() *cobra.Command {
	var o backup.Options
	var recipients []string
	var every time.Duration
	var withoutHistory bool
	c := newSettingsCommand("backup --to FOLDER", func(c *cobra.Command) (err error) {
		if o.Keep < 1 || every < time.Minute {
			return errors.New("--keep: want 1 or more; --every: 1m or more")
		}
		if o.Recipients, err = age.ParseRecipients(strings.NewReader(strings.Join(recipients, "\n"))); err != nil && len(recipients) > 0 {
			return fmt.Errorf("--age-recipient: %w", err)
		}
		place, err := backup.OpenPlace(o.To)
		if err != nil {
			return err
		}
		if flagSet(c, healthFlag) {
			left, err := place.Due(c.Context(), every+every/12)
			if err == nil && left <= 0 {
				err = fmt.Errorf("no backup in %s is younger than %s", o.To, every+every/12)
			}
			return err
		}
		o.Progress = progressTo(c)
		repeated, take := c.Flags().Changed("every"), backup.Make
		if !repeated && !c.Flags().Changed("keep") {
			o.Keep = 0 // one by hand is no reason to remove others
		}
		if repeated || strings.HasPrefix(o.To, "s3://") {
			take = place.Take
		}
		one := func(context.Context) error {
			began, out := time.Now(), c.OutOrStdout()
			return withStores(c, true, !withoutHistory, func(ctx context.Context, s stores) error {
				m, err := take(ctx, s.ledger, s.archive, o)
				if m == nil {
					return err
				}
				fmt.Fprintf(out, "backup %s of everything acknowledged before %s is whole, after %.1f s: %s\n",
					m.ID, m.Began.Format(time.RFC3339), time.Since(began).Seconds(), o.To)
				if len(m.Included) == 0 {
					fmt.Fprintln(out, "it holds no keys: keep WEBHOOK_KEYS, TOKEN_KEYS, TRACKING_KEYS and ADMIN_KEY elsewhere")
				}
				return errors.Join(err, s.ledger.Backup.Note(ctx, m.Began))
			})
		}
		if !repeated {
			return one(c.Context())
		}
		place.Repeat(c.Context(), every, one, o.Progress)
		return nil
	})
	f := c.Flags()
	f.StringVar(&o.To, "to", "", "the folder to make; with --every, or as s3://bucket/prefix, where each gets a folder named by its time")
	f.StringArrayVar(&o.Include, "include", nil, "a further file or folder to copy, such as the keys; may be repeated")
	f.BoolVar(&withoutHistory, "without-history", false, "leave ClickHouse out: it has a backup of its own")
	f.DurationVar(&every, "every", 24*time.Hour, "go on, and make one whenever the newest is older")
	f.IntVar(&o.Keep, "keep", 14, "how many whole ones to leave there, the new one included; older ones are removed, without --every only when this is given")
	f.StringSliceVar(&recipients, "age-recipient", nil, "encrypt for this public key of age; may be repeated")
	f.Bool(healthFlag, false, "ask whether the newest backup is younger than --every and a twelfth, and end: 0 if so, else 1")
	requireFlag(c, "to")
	return c
}

func newRestoreCommand() *cobra.Command {
	var from, redisDir, includedDir, list string
	var identities []string
	var node int
	var check, merge, withoutHistory bool
	c := newSettingsCommand("restore --from FOLDER", func(c *cobra.Command) error {
		m, err := backup.Open(from, identities...)
		if err != nil {
			return err
		}
		erasures, lists, err := m.ReadErasures(cmp.Or(list, backup.ErasuresBeside(from)))
		if err != nil && redisDir == "" && includedDir == "" { // those need no list
			return err
		}
		out := c.OutOrStdout()
		if check {
			fmt.Fprintf(out, "backup %s is whole: everything acknowledged before %s\n", m.ID, m.Began.Format(time.RFC3339))
			return nil
		}
		if includedDir != "" {
			if err := m.PlaceIncluded(from, includedDir); err != nil {
				return err
			}
			fmt.Fprintf(out, "put %d included files below %s\n", len(m.Included), includedDir)
		}
		if redisDir != "" {
			if err := m.PlaceRedis(from, node, redisDir); err != nil {
				return err
			}
			fmt.Fprintf(out, "put the snapshot of %s into %s; start Redis there, then: reporting restore --from %s\n",
				m.Redis[node].Addr, filepath.Clean(redisDir), from)
		}
		if redisDir != "" || includedDir != "" {
			return nil
		}
		return withStores(c, true, !withoutHistory && len(m.Tables) > 0, func(ctx context.Context, s stores) error {
			// Before programs may start, and in that Redis only.
			if err := s.ledger.Backup.Resumable(ctx, m.ID); err != nil {
				return err
			}
			if err := eraseAgain(ctx, c, s.ledger, erasures); err != nil {
				return err
			}
			if _, err := s.ledger.Backup.ErasureList(ctx, append(lists, "")[0]); err != nil { // a backup of before names none
				return err
			}
			fmt.Fprintf(out, "orders that were erased on request, and are again: %d\n", len(erasures))
			resumed, err := m.Finish(ctx, from, s.ledger, s.archive, merge, progressTo(c))
			switch {
			case err != nil:
				return err
			case resumed.Before:
				fmt.Fprintln(out, "Redis had been made fit to go on before; nothing was changed there")
			default:
				fmt.Fprintf(out, `restored everything acknowledged before %s
the exporter was set back in %d streams, the epoch is %d, %d sessions of the panel were ended
start the programs, and then: reporting reconcile
`, m.Began.Format(time.RFC3339), resumed.Streams, resumed.Epoch, resumed.Sessions)
			}
			return nil
		})
	})
	f := c.Flags()
	f.StringVar(&from, "from", "", "the backup's folder")
	f.BoolVar(&check, "check", false, "check the sums of the folder, and do nothing")
	f.StringVar(&redisDir, "redis-dir", "", "data folder of a Redis that does not run")
	f.IntVar(&node, "node", 0, "which master's snapshot goes into --redis-dir, from 0")
	f.StringVar(&includedDir, "included-dir", "", "where to put the included files")
	f.StringArrayVar(&identities, "age-identity", nil, "a file with the private key of an encrypted backup; may be repeated")
	f.StringVar(&list, "erasures", "", "the list of what was erased on request, which is erased again (default: the file erasures beside the backup)")
	f.BoolVar(&merge, "merge", false, "load although ClickHouse has rows: to go on after an interruption")
	f.BoolVar(&withoutHistory, "without-history", false, "leave ClickHouse as it is: it has survived, or was restored by other means")
	requireFlag(c, "from")
	c.MarkFlagsMutuallyExclusive("check", "redis-dir")
	return c
}

// exitError ends the program with a status of its own.
type exitError struct {
	error
	status int
}

// Statuses of `reporting erase` besides 0 and 1.
const (
	statusNothingFound = 2
	statusInProgress   = 3
)

func newEraseCommand() *cobra.Command {
	var order, account, externalID, phone, record, actor string
	c := newSettingsCommand("erase (--order ID | --account ID --external-order-id ID | --phone NUMBER) --record FILE", func(c *cobra.Command) error {
		return withStores(c, true, false, func(ctx context.Context, s stores) error {
			ids, err := findOrders(ctx, s.ledger, order, account, externalID, phone, progressOf(c))
			if err != nil && len(ids) == 0 || errors.Is(err, delivery.ErrUnavailable) {
				return err
			}
			return cmp.Or(err, erase(ctx, c, s.ledger, ids, record, actor)) // err: further orders could not be read
		})
	})
	f := c.Flags()
	f.StringVar(&order, "order", "", "the order's id")
	f.StringVar(&account, "account", "", "the vendor's account id, with --external-order-id")
	f.StringVar(&externalID, "external-order-id", "", "the vendor's own id of the order, as long as Redis has it")
	f.StringVar(&phone, "phone", "", "the recipient's telephone number: all of their orders, until a day after their end")
	f.StringVar(&record, "record", "", "the environment's list of erasures, beside its backups; the first of all makes it")
	f.StringVar(&actor, "actor", systemUser(), "who erases, for the audit trail")
	requireFlag(c, "record")
	c.MarkFlagsOneRequired("order", "account", "phone")
	c.MarkFlagsMutuallyExclusive("order", "account", "phone")
	c.MarkFlagsRequiredTogether("account", "external-order-id")
	return c
}

func findOrders(ctx context.Context, l *ledger.Ledger, order, account, externalID, phone string, progress func(string, int)) (ids []delivery.OrderID, err error) {
	switch {
	case order != "":
		id, err := delivery.ParseOrderID(order)
		if err != nil {
			return nil, fmt.Errorf("--order: %w", err)
		}
		return []delivery.OrderID{id}, nil
	case account != "":
		id, err := delivery.ParseAccountID(account)
		if err != nil {
			return nil, fmt.Errorf("--account: %w", err)
		}
		found, err := l.Orders.Find(ctx, id, externalID)
		if err != nil || found == nil {
			return nil, err
		}
		return []delivery.OrderID{found.ID}, nil
	}
	if phone, err = delivery.NormalizePhone(phone); err != nil {
		return nil, fmt.Errorf("--phone: %w", err)
	}
	looked := 0
	err = l.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			if o.Recipient.Phone == phone && !slices.Contains(ids, o.ID) {
				ids = append(ids, o.ID)
			}
		}
		looked += len(orders)
		progress("orders looked at", looked)
		return nil
	})
	return ids, err
}

// progressOf writes how far long work has got, once a second.
func progressOf(c *cobra.Command) func(string, int) {
	last := time.Now()
	return func(what string, n int) {
		if time.Since(last) > time.Second {
			last = time.Now()
			fmt.Fprintf(c.ErrOrStderr(), "%s: %d\n", what, n)
		}
	}
}

// systemUser is who runs this program, as far as the system knows.
func systemUser() string {
	u, err := user.Current()
	if err != nil {
		return fmt.Sprintf("user %d", os.Getuid())
	}
	return u.Username
}

// erase erases the orders that have ended, or left Redis: those are in backups only. The list and the
// audit stream come first: whatever is erased in Redis is in both.
func erase(ctx context.Context, c *cobra.Command, l *ledger.Ledger, ids []delivery.OrderID, record, actor string) error {
	orders, err := l.Orders.GetAll(ctx, ids)
	retired, other := l.Orders.Retired(ctx, ids)
	if err := cmp.Or(err, other); err != nil {
		return err
	}
	now, erasures, waiting, said := time.Now().UTC().Truncate(time.Second), backup.Erasures{}, 0, ""
	var notes []*ledger.AuditEntry
	for i, o := range orders {
		text, account := "erased", delivery.AccountID{}
		if o != nil {
			account = o.Account
		}
		switch {
		case o == nil && !retired[i]:
			continue
		case o == nil:
			text = "has left Redis before; a backup that holds it is erased when it is restored"
		case !o.Status.Terminal():
			fmt.Fprintf(c.OutOrStdout(), "order %s (%s) is %s; its courier needs the address: erase it after its end\n", o.ID, o.ExternalOrderID, o.Status)
			waiting++
			continue
		case !o.ErasedAt.IsZero():
			text = "was erased before, on " + o.ErasedAt.In(delivery.Istanbul).Format(time.DateOnly)
		}
		erasures[ids[i]] = now
		notes = append(notes, erasureNote(now, actor, "reporting erase", account, ids[i]))
		said += fmt.Sprintf("order %s: %s\n", ids[i], text)
	}
	if len(erasures)+waiting == 0 {
		return &exitError{errors.New("nothing found (Redis has a telephone number until a day after an order's end: name older orders by their ids)"), statusNothingFound}
	}
	list, there, err := backup.FindErasures(ctx, l, record)
	if err == nil && !there {
		err = fmt.Errorf("%s is not this environment's list of erasures, which has the line `list %s`: name that one, or a restore knows nothing of this", record, list)
	}
	if err == nil {
		err = erasures.Record(record)
	}
	if err != nil {
		return err
	}
	for _, note := range notes {
		if err := l.Audit.Append(ctx, note); err != nil {
			return err
		}
	}
	for id := range erasures { // a telephone number finds no more what is erased
		fmt.Fprintf(c.ErrOrStderr(), "erasing order %s; should this be cut short, --order %s repeats it\n", id, id)
	}
	if err := eraseAll(ctx, c, l, erasures, false); err != nil {
		return err
	}
	fmt.Fprint(c.OutOrStdout(), said)
	if waiting > 0 {
		return &exitError{fmt.Errorf("%d orders are in progress and were not erased", waiting), statusInProgress}
	}
	return nil
}

func erasureNote(at time.Time, actor, credential string, account delivery.AccountID, order delivery.OrderID) *ledger.AuditEntry {
	return &ledger.AuditEntry{At: at, ID: ledger.NewAuditID(), Version: 1, Actor: actor, Credential: credential, Action: "recipient erased", Account: account, Order: order}
}

// eraseAgain erases what a restored Redis has again.
func eraseAgain(ctx context.Context, c *cobra.Command, l *ledger.Ledger, erasures backup.Erasures) error {
	orders, err := l.Orders.GetAll(ctx, slices.Collect(maps.Keys(erasures)))
	for _, o := range orders {
		if err == nil && o != nil && o.ErasedAt.IsZero() {
			err = l.Audit.Append(ctx, erasureNote(time.Now().Truncate(time.Millisecond), systemUser(), "reporting restore", o.Account, o.ID))
		}
	}
	if err != nil {
		return err
	}
	return eraseAll(ctx, c, l, erasures, true)
}

func eraseAll(ctx context.Context, c *cobra.Command, l *ledger.Ledger, erasures backup.Erasures, unended bool) error {
	if len(erasures) == 0 {
		return nil
	}
	if err := l.Erasure.Erase(ctx, erasures, unended, progressOf(c)); err != nil {
		return err
	}
	fmt.Fprintln(c.ErrOrStderr(), "Redis rewrites its append-only file")
	return l.Erasure.RewriteFiles(ctx)
}
