package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	var order, account, externalID, phone, record string
	c := newSettingsCommand("erase (--order ID | --account ID --external-order-id ID | --phone NUMBER) --record FILE", func(c *cobra.Command) error {
		find, err := wanted(order, account, externalID, phone, progressTo(c.ErrOrStderr(), "looked at %d orders"))
		if err != nil {
			return err
		}
		if _, err := backup.ReadErasures(record); err != nil {
			return err
		}
		return withStores(c, true, false, func(ctx context.Context, s stores) error {
			ids, unreadable := find(ctx, s.ledger)
			if errors.Is(unreadable, delivery.ErrUnavailable) {
				return unreadable
			}
			return cmp.Or(unreadable, erase(ctx, c, s.ledger, ids, record))
		})
	})
	f := c.Flags()
	f.StringVar(&order, "order", "", "the order's id")
	f.StringVar(&account, "account", "", "the vendor's account id, with --external-order-id")
	f.StringVar(&externalID, "external-order-id", "", "the vendor's own id of the order")
	f.StringVar(&phone, "phone", "", "the recipient's telephone number: all of their orders that Redis has not shrunk yet")
	f.StringVar(&record, "record", "", "the list of erasures beside the backups")
	requireFlag(c, "record")
	c.MarkFlagsOneRequired("order", "account", "phone")
	c.MarkFlagsMutuallyExclusive("order", "account", "phone")
	c.MarkFlagsRequiredTogether("account", "external-order-id")
	return c
}

// finder names the orders to erase. An error besides delivery.ErrUnavailable names orders that
// could not be read.
type finder func(context.Context, *ledger.Ledger) ([]delivery.OrderID, error)

func wanted(order, account, externalID, phone string, progress func(int)) (finder, error) {
	switch {
	case order != "":
		id, err := delivery.ParseOrderID(order)
		return func(context.Context, *ledger.Ledger) ([]delivery.OrderID, error) { return []delivery.OrderID{id}, nil }, named("order", err)
	case account != "":
		id, err := delivery.ParseAccountID(account)
		return func(ctx context.Context, l *ledger.Ledger) ([]delivery.OrderID, error) {
			switch order, err := l.Erasure.Find(ctx, id, externalID); {
			case err == nil:
				return []delivery.OrderID{order}, nil
			case delivery.CodeOf(err) == delivery.CodeOrderNotFound:
				return nil, nil
			default:
				return nil, err
			}
		}, named("account", err)
	}
	phone, err := delivery.NormalizePhone(phone)
	return func(ctx context.Context, l *ledger.Ledger) (ids []delivery.OrderID, err error) {
		looked, seen := 0, make(map[delivery.OrderID]bool)
		err = l.Orders.Each(ctx, func(orders []*delivery.Order) error {
			for _, o := range orders {
				if o.Recipient.Phone == phone && !seen[o.ID] {
					seen[o.ID] = true
					ids = append(ids, o.ID)
				}
			}
			looked += len(orders)
			progress(looked)
			return nil
		})
		return ids, err
	}, named("phone", err)
}

func named(flag string, err error) error {
	if err != nil {
		err = fmt.Errorf("--%s: %w", flag, err)
	}
	return err
}

// progressTo writes how far long work has got, once a second.
func progressTo(w io.Writer, format string) func(int) {
	last := time.Now()
	return func(n int) {
		if time.Since(last) > time.Second {
			last = time.Now()
			fmt.Fprintf(w, format+"\n", n)
		}
	}
}

// erase erases the orders that have ended, or left Redis: those are in backups only. The list comes
// first: whatever is erased in Redis is in it.
func erase(ctx context.Context, c *cobra.Command, l *ledger.Ledger, ids []delivery.OrderID, record string) error {
	orders, err := l.Orders.GetAll(ctx, ids)
	if err != nil {
		return err
	}
	retired, err := l.Orders.Retired(ctx, ids)
	if err != nil {
		return err
	}
	now, out := time.Now().UTC().Truncate(time.Second), c.OutOrStdout()
	var ended []delivery.OrderID
	var said []string
	waiting, erasures := 0, make(map[delivery.OrderID]time.Time)
	for i, o := range orders {
		text := "erased"
		switch {
		case o == nil && !retired[i]:
			continue
		case o == nil:
			text = "has left Redis before; a backup that holds it is erased when it is restored"
		case !o.Status.Terminal():
			fmt.Fprintf(out, "order %s (%s): is %s; its courier needs the address: erase it after its end\n", o.ID, o.ExternalOrderID, o.Status)
			waiting++
			continue
		case !o.ErasedAt.IsZero():
			text = "was erased before, on " + o.ErasedAt.In(delivery.Istanbul).Format(time.DateOnly)
		}
		ended, erasures[ids[i]] = append(ended, ids[i]), now
		said = append(said, fmt.Sprintf("order %s: %s", ids[i], text))
	}
	if len(ended)+waiting == 0 {
		return &exitError{errors.New("nothing found: no order in Redis has that (a telephone number is kept until a day after an order's end; name older orders by their ids)"), statusNothingFound}
	}
	if err := backup.Record(record, ended, now); err != nil {
		return err
	}
	if err := eraseAll(ctx, c, l, erasures, false); err != nil {
		return err
	}
	for _, text := range said {
		fmt.Fprintln(out, text)
	}
	if waiting > 0 {
		return &exitError{fmt.Errorf("%d orders are in progress and were not erased", waiting), statusInProgress}
	}
	return nil
}

func eraseAll(ctx context.Context, c *cobra.Command, l *ledger.Ledger, erasures backup.Erasures, unended bool) error {
	if len(erasures) == 0 {
		return nil
	}
	orders, logs := progressTo(c.ErrOrStderr(), "went through %d orders"), progressTo(c.ErrOrStderr(), "went through the webhooks of %d accounts")
	err := l.Erasure.Erase(ctx, erasures, unended, func(done, accounts int) {
		if accounts == 0 {
			orders(done)
		} else {
			logs(accounts)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(c.ErrOrStderr(), "Redis writes its append-only file anew")
	return l.Erasure.RewriteFiles(ctx)
}
