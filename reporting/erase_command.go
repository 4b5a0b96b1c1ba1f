package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/backup"
)

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
		found, err := l.Orders.Find(ctx, externalID)
		for _, o := range found {
			if o.Account == id {
				ids = append(ids, o.ID)
			}
		}
		return ids, err
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
