package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"vendorapi/internal/ledger/audit"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/backup"
	"vendorapi/reporting/export"
	"vendorapi/reporting/reconcile"
)

func newMigrateCommand() *cobra.Command {
	var from string
	c := newSettingsCommand("migrate", func(c *cobra.Command) error {
		return withUncheckedStores(c, true, true, func(ctx context.Context, s stores) error {
			did := false
			if from != "" {
				taken, err := s.archive.TakeOver(ctx, from, ownerOf(s.ledger))
				if err != nil {
					return err
				}
				if taken {
					fmt.Fprintf(c.OutOrStdout(), "the database was that of ledger %s and is now that of ledger %s\n", from, s.ledger.ID())
				}
				did = taken
			}

			applied, err := migrate(ctx, s.ledger, s.archive)
			for _, name := range applied {
				fmt.Fprintln(c.OutOrStdout(), "applied", name)
			}

			if err != nil {
				return err
			}

			if !did && len(applied) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing to do")
			}

			return nil
		})
	})

	c.Flags().StringVar(&from, "take-over", "", "the id of the ledger that the database belonged to, which was lost without a backup: it is this environment's ledger's from now on")

	return c
}

func newRebuildCommand() *cobra.Command {
	var from string
	c := newSettingsCommand("rebuild --from 2026-11-01", func(c *cobra.Command) error {
		begin, err := parseDay("from", from)
		if err != nil {
			return err
		}

		return withStores(c, true, func(ctx context.Context, s stores) error {
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

// atMostFlag bounds what `reporting reconcile --remove-unknown` removes.
const atMostFlag = "at-most"

func newReconcileCommand() *cobra.Command {
	var day, from, to, account string
	var scope reconcile.Scope
	c := newSettingsCommand("reconcile", func(c *cobra.Command) error {
		if err := readScope(&scope, time.Now(), day, from, to, account); err != nil {
			return err
		}
		if c.Flags().Changed(atMostFlag) && (scope.AtMost < 1 || !scope.RemoveUnknown) {
			return errors.New("--at-most: want 1 or more, with --remove-unknown")
		}

		return withStores(c, true, func(ctx context.Context, s stores) error {
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

			if errors.Is(err, reconcile.ErrManyUnknown) {
				return fmt.Errorf("%w. Is this the right Redis, and is it whole? If it is, and these are to go: --%s with their number", err, atMostFlag)
			}

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
	f.BoolVar(&scope.RemoveUnknown, "remove-unknown", false, "with --fix, also remove orders and late deliveries from ClickHouse that Redis never had")
	f.IntVar(&scope.AtMost, atMostFlag, 0, "with --remove-unknown, how many of them may be removed (default: 100, or 1 % of the orders compared if that is more)")
	f.DurationVar(&scope.Timeout, "wait", time.Minute, "how long to wait for the exporter to catch up")
	c.MarkFlagsMutuallyExclusive("day", "from")
	c.MarkFlagsMutuallyExclusive("day", "to")

	return c
}

// defaultDays are the days that are compared when none is named, today
// included: the default retention of Redis and today.
const defaultDays = 8

func readScope(s *reconcile.Scope, now time.Time, day, from, to, account string) (err error) {
	read := func(flag, text string, into *time.Time) {
		if text != "" && err == nil {
			*into, err = parseDay(flag, text)
		}
	}

	s.To = archive.BusinessDay(now)
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
		s.Account, err = delivery.ParseAccountID(account)
		if err != nil {
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

	c := newSettingsCommand("backup --to FOLDER", func(c *cobra.Command) error {
		if o.Keep < 1 || every < time.Minute {
			return errors.New("--keep: want 1 or more; --every: 1m or more")
		}

		if len(recipients) > 0 {
			parsed, err := age.ParseRecipients(strings.NewReader(strings.Join(recipients, "\n")))
			if err != nil {
				return fmt.Errorf("--age-recipient: %w", err)
			}
			o.Recipients = parsed
		}

		place, err := backup.OpenPlace(o.To)
		if err != nil {
			return err
		}

		if flagSet(c, healthFlag) {
			return checkNewestBackup(c.Context(), place, o.To, every+every/12)
		}

		isRepeated := c.Flags().Changed("every")
		if !isRepeated && !c.Flags().Changed("keep") {
			o.Keep = 0 // one by hand is no reason to remove others
		}

		o.Progress = progressTo(c)
		makeBackup := backup.Make
		if isRepeated || strings.HasPrefix(o.To, "s3://") {
			makeBackup = place.Take
		}

		makeOne := func(context.Context) error {
			began := time.Now()
			return withUncheckedStores(c, true, !withoutHistory, func(ctx context.Context, s stores) error {
				// What is missing besides, such as a view, is no reason to make no backup.
				if s.archive != nil {
					if err := s.archive.CheckOwner(ctx, ownerOf(s.ledger)); err != nil {
						return err
					}
				}

				m, err := makeBackup(ctx, s.ledger, s.archive, o)
				if m == nil {
					return err
				}

				reportBackup(c.OutOrStdout(), m, time.Since(began), o.To)

				return errors.Join(err, s.ledger.Backup.Note(ctx, m.Began))
			})
		}
		if !isRepeated {
			return makeOne(c.Context())
		}

		place.Repeat(c.Context(), every, makeOne, o.Progress)

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

// checkNewestBackup fails when no whole backup in the place, which people know as to, is younger
// than maxAge.
func checkNewestBackup(ctx context.Context, place *backup.Place, to string, maxAge time.Duration) error {
	left, err := place.Due(ctx, maxAge)
	if err != nil {
		return err
	}

	if left <= 0 {
		return fmt.Errorf("no backup in %s is younger than %s", to, maxAge)
	}
	return nil
}

func reportBackup(out io.Writer, m *backup.Manifest, took time.Duration, to string) {
	fmt.Fprintf(out, "backup %s of everything acknowledged before %s is whole, after %.1f s: %s\n",
		m.ID, m.Began.Format(time.RFC3339), took.Seconds(), to)
	if len(m.Included) == 0 {
		fmt.Fprintln(out, "it holds no keys: keep WEBHOOK_KEYS, TOKEN_KEYS, TRACKING_KEYS, BOOKS_KEYS and ADMIN_KEY elsewhere")
	}
}

func newRestoreCommand() *cobra.Command {
	var r restoration
	c := newSettingsCommand("restore --from FOLDER", r.run)

	f := c.Flags()
	f.StringVar(&r.from, "from", "", "the backup's folder")
	f.BoolVar(&r.checkOnly, "check", false, "check the sums of the folder, and do nothing")
	f.StringVar(&r.redisDir, "redis-dir", "", "data folder of a Redis that does not run")
	f.IntVar(&r.node, "node", 0, "which master's snapshot goes into --redis-dir, from 0")
	f.StringVar(&r.includedDir, "included-dir", "", "where to put the included files")
	f.StringArrayVar(&r.identities, "age-identity", nil, "a file with the private key of an encrypted backup; may be repeated")
	f.StringVar(&r.erasuresFile, "erasures", "", "the list of what was erased on request, which is erased again (default: the file erasures beside the backup)")
	f.BoolVar(&r.merge, "merge", false, "load although ClickHouse has rows: to go on after an interruption")
	f.BoolVar(&r.withoutHistory, "without-history", false, "leave ClickHouse as it is: it has survived, or was restored by other means")
	f.BoolVar(&r.onlyHistory, "only-history", false, "load only ClickHouse, to bring back lost rows; Redis stays as it is")
	requireFlag(c, "from")
	c.MarkFlagsMutuallyExclusive("check", "redis-dir")
	for _, other := range []string{"check", "redis-dir", "included-dir", "merge", "without-history"} {
		c.MarkFlagsMutuallyExclusive("only-history", other)
	}

	return c
}

// A restoration is one call of `reporting restore`: its flags, and what it reads from the backup.
type restoration struct {
	from           string
	identities     []string
	checkOnly      bool
	redisDir       string // empty: no snapshot is put anywhere
	node           int
	includedDir    string // empty: no files are put anywhere
	erasuresFile   string // empty: the one beside the backup
	merge          bool
	withoutHistory bool
	onlyHistory    bool

	manifest *backup.Manifest
	erasures backup.Erasures
	lists    []string // the ids that the list of erasures names; none before the first erasure
}

func (r *restoration) run(c *cobra.Command) error {
	out := c.OutOrStdout()
	onlyPlacesFiles := r.redisDir != "" || r.includedDir != ""

	m, err := backup.Open(r.from, r.identities...)
	if err != nil {
		return err
	}

	r.manifest = m
	// ClickHouse has no data of recipients, so nothing is erased again.
	if r.onlyHistory {
		return withStores(c, true, func(ctx context.Context, s stores) error {
			return r.loadHistory(ctx, c, s)
		})
	}

	r.erasures, r.lists, err = m.ReadErasures(cmp.Or(r.erasuresFile, backup.ErasuresBeside(r.from)))
	if err != nil && !onlyPlacesFiles { // files are put in their places without the list
		return err
	}

	if r.checkOnly {
		fmt.Fprintf(out, "backup %s is whole: everything acknowledged before %s\n", m.ID, m.Began.Format(time.RFC3339))
		return nil
	}

	if onlyPlacesFiles {
		return r.placeFiles(out)
	}

	loadsHistory := !r.withoutHistory && len(m.Tables) > 0

	return withStores(c, loadsHistory, func(ctx context.Context, s stores) error {
		return r.load(ctx, c, s)
	})
}

// placeFiles puts the included files and the snapshot of a Redis that does not run into the folders
// that are given.
func (r *restoration) placeFiles(out io.Writer) error {
	if r.includedDir != "" {
		if err := r.manifest.PlaceIncluded(r.from, r.includedDir); err != nil {
			return err
		}
		fmt.Fprintf(out, "put %d included files below %s\n", len(r.manifest.Included), r.includedDir)
	}

	if r.redisDir != "" {
		if err := r.manifest.PlaceRedis(r.from, r.node, r.redisDir); err != nil {
			return err
		}
		fmt.Fprintf(out, "put the snapshot of %s into %s; start Redis there, then: reporting restore --from %s\n",
			r.manifest.Redis[r.node].Addr, filepath.Clean(r.redisDir), r.from)
	}

	return nil
}

// load makes a Redis that runs on the snapshot fit to go on, and loads ClickHouse.
func (r *restoration) load(ctx context.Context, c *cobra.Command, s stores) error {
	out := c.OutOrStdout()

	// Erased before programs may start, and in the Redis of this backup only.
	if err := s.ledger.Backup.Resumable(ctx, r.manifest.ID); err != nil {
		return err
	}
	if err := eraseAgain(ctx, c, s.ledger, r.erasures); err != nil {
		return err
	}

	list := "" // stays empty when the file names no list
	if len(r.lists) > 0 {
		list = r.lists[0]
	}

	if _, err := s.ledger.Backup.ErasureList(ctx, list); err != nil {
		return err
	}

	fmt.Fprintf(out, "orders that were erased on request, and are again: %d\n", len(r.erasures))

	resumed, err := r.manifest.Finish(ctx, r.from, s.ledger, s.archive, r.merge, progressTo(c))
	if err != nil {
		return err
	}

	if resumed.Before {
		fmt.Fprintln(out, "Redis had been made fit to go on before; nothing was changed there")
		return nil
	}

	fmt.Fprintf(out, `restored everything acknowledged before %s
the exporter was set back in %d streams, %d sessions of the panel were ended
start the programs, and then: reporting reconcile
`, r.manifest.Began.Format(time.RFC3339), resumed.Streams, resumed.Sessions)

	return nil
}

// loadHistory brings rows of ClickHouse back, while Redis stays as it is.
func (r *restoration) loadHistory(ctx context.Context, c *cobra.Command, s stores) error {
	if err := r.manifest.LoadHistory(ctx, r.from, s.ledger, s.archive, progressTo(c)); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "loaded what ClickHouse had at %s; Redis was left as it is\n", r.manifest.Began.Format(time.RFC3339))
	return nil
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
		return withStores(c, false, func(ctx context.Context, s stores) error {
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

	phone, err = delivery.NormalizePhone(phone)
	if err != nil {
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
	if err != nil {
		return err
	}
	retired, err := l.Orders.Retired(ctx, ids)
	if err != nil {
		return err
	}

	now := l.Now().UTC().Truncate(time.Second)
	erasures := backup.Erasures{}
	inProgress := 0
	var notes []*audit.Entry
	var results strings.Builder
	for i, o := range orders {
		if o == nil && !retired[i] {
			continue
		}

		if o != nil && !o.Status.Terminal() {
			fmt.Fprintf(c.OutOrStdout(), "order %s (%s) is %s; its courier needs the address: erase it after its end\n", o.ID, o.ExternalOrderID, o.Status)
			inProgress++
			continue
		}

		var account delivery.AccountID // stays zero for an order that has left Redis
		result := "erased"
		switch {
		case o == nil:
			result = "has left Redis before; a backup that holds it is erased when it is restored"
		case o.ErasedAt.IsZero():
			account = o.Account
		default:
			account = o.Account
			result = "was erased before, on " + o.ErasedAt.In(delivery.Istanbul).Format(time.DateOnly)
		}

		erasures[ids[i]] = now
		notes = append(notes, erasureNote(now, actor, "reporting erase", account, ids[i]))
		fmt.Fprintf(&results, "order %s: %s\n", ids[i], result)
	}

	if len(erasures)+inProgress == 0 {
		return &exitError{errors.New("nothing found (Redis has a telephone number until a day after an order's end: name older orders by their ids)"), statusNothingFound}
	}

	if err := recordErasures(ctx, l, record, erasures); err != nil {
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

	fmt.Fprint(c.OutOrStdout(), results.String())

	if inProgress > 0 {
		return &exitError{fmt.Errorf("%d orders are in progress and were not erased", inProgress), statusInProgress}
	}

	return nil
}

// recordErasures adds the erasures to the file record, which must be the environment's list.
func recordErasures(ctx context.Context, l *ledger.Ledger, record string, erasures backup.Erasures) error {
	list, isList, err := backup.FindErasures(ctx, l, record)
	if err != nil {
		return err
	}

	if !isList {
		return fmt.Errorf("%s is not this environment's list of erasures, which has the line `list %s`: name that one, or a restore knows nothing of this", record, list)
	}
	return erasures.Record(record)
}

func erasureNote(at time.Time, actor, credential string, account delivery.AccountID, order delivery.OrderID) *audit.Entry {
	return &audit.Entry{At: at, ID: audit.NewID(), Version: 1, Actor: actor, Credential: credential, Action: "recipient erased", Account: account, Order: order}
}

// eraseAgain erases what a restored Redis has again.
func eraseAgain(ctx context.Context, c *cobra.Command, l *ledger.Ledger, erasures backup.Erasures) error {
	orders, err := l.Orders.GetAll(ctx, slices.Collect(maps.Keys(erasures)))
	for _, o := range orders {
		if err == nil && o != nil && o.ErasedAt.IsZero() {
			err = l.Audit.Append(ctx, erasureNote(l.Now().Truncate(time.Millisecond), systemUser(), "reporting restore", o.Account, o.ID))
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
