package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// Look is one comparison of a local day of Redis with ClickHouse, made after the day's end.
type Look struct {
	At          time.Time `json:"at"`
	Orders      int       `json:"orders"`      // that Redis held and were compared
	Retired     int       `json:"retired"`     // that had left Redis: nothing was compared with them
	Differences int       `json:"differences"` // orders, late deliveries and sums that differed

	// Digest is that of the day's orders in ClickHouse, as they were compared.
	Digest archive.Digest `json:"digest,omitzero"`
}

func (l *Look) isClean() bool { return l.Differences == 0 }

// Comparison is what all looks at a day have shown. A day counts as compared by a clean look at all of
// its orders, and not while a difference is open.
type Comparison struct {
	// Clean is the last clean look that compared every order of the day; nil: there was none.
	Clean *Look `json:"clean,omitempty"`

	// Open is the look that found differences and compared the most orders; nil: none, or a later clean
	// look compared as many. A look at fewer orders does not refute it: what differed may have left Redis.
	Open *Look `json:"open,omitempty"`
}

// add takes a look into account.
//
//   - With differences: it becomes Open unless Open compared more orders.
//   - Clean: it clears Open if it compared at least as many orders, and becomes Clean if no order of the
//     day had left Redis. A clean look at fewer orders clears nothing.
func (c *Comparison) add(l Look) {
	if !l.isClean() {
		if c.Open == nil || l.Orders >= c.Open.Orders {
			c.Open = &l
		}
		return
	}

	refutes := c.Open != nil && l.Orders >= c.Open.Orders
	if refutes {
		c.Open = nil
	}

	if l.Retired == 0 {
		c.Clean = &l
	}
}

// maxNoteAttempts bounds how often noteLook tries while other processes write the same day.
const maxNoteAttempts = 5

// noteLook adds a look to the comparison of a day. It is kept in Redis under a name to which only
// reporting has a right: whoever can write to ClickHouse cannot make a day look compared.
func noteLook(ctx context.Context, l *ledger.Ledger, day time.Time, look Look) error {
	name := day.Format(time.DateOnly)
	for range maxNoteAttempts {
		stored, err := l.Books.Comparisons(ctx, []string{name})
		if err != nil {
			return err
		}
		comparison, err := parseComparison(stored[0])
		if err != nil {
			return err
		}

		comparison.add(look)
		text, err := json.Marshal(comparison)
		if err != nil {
			return fmt.Errorf("the comparison of %s: %w", name, err)
		}

		err = l.Books.SetComparison(ctx, name, stored[0], string(text))
		if !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}

	return fmt.Errorf("the comparison of %s: %w", name, ledger.ErrConflict)
}

func parseComparison(text string) (Comparison, error) {
	var c Comparison
	if text == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, fmt.Errorf("a day's comparison cannot be read: %w", err)
	}
	return c, nil
}

// Comparisons returns the comparisons of the days from one local midnight to another, both included, in
// their order.
func Comparisons(ctx context.Context, l *ledger.Ledger, from, to time.Time) ([]Comparison, error) {
	var days []string
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		days = append(days, day.Format(time.DateOnly))
	}

	stored, err := l.Books.Comparisons(ctx, days)
	if err != nil {
		return nil, err
	}

	all := make([]Comparison, len(stored))
	for i := range stored {
		all[i], err = parseComparison(stored[i])
		if err != nil {
			return nil, err
		}
	}

	return all, nil
}
