package closing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// review is how far the nightly work has got with closed months. It is in Redis, so that any process can continue it.
type review struct {
	// ComparedUntil is a time of ClickHouse's clock: rows that were stored more than storedWithin before it were
	// compared with the table orders. Zero: none were, so the next look compares everything.
	ComparedUntil time.Time `json:"comparedUntil,omitzero"`

	// Waiting are the orders that wait for a person.
	Waiting []archive.Place `json:"waiting,omitempty"`

	// Verified has the last verification of each month, by its name, such as 2026-10.
	Verified map[string]verification `json:"verified,omitempty"`

	// UnknownSets counts the sets of files at targets, and the rows about them, of which the log has no entry.
	UnknownSets int `json:"unknownSets,omitempty"`

	// Completed is when a night's work last came to its end without an error; zero: it never did.
	Completed time.Time `json:"completed,omitzero"`
}

// verification is when a closed month was last verified as a whole, and how many findings there were.
type verification struct {
	At       time.Time `json:"at,omitzero"`
	Findings int       `json:"findings"`

	// Tried is when it was last tried. What cannot be verified, or a target that does not answer, must not hold up
	// the other months.
	Tried time.Time `json:"tried,omitzero"`
}

// replaceWaiting removes compared from Waiting and adds waiting, each order once.
func (r *review) replaceWaiting(compared, waiting []archive.Place) {
	isReplaced := map[archive.Place]bool{}
	for _, p := range slices.Concat(compared, waiting) {
		isReplaced[p] = true
	}
	r.Waiting = slices.DeleteFunc(r.Waiting, func(p archive.Place) bool { return isReplaced[p] })
	r.Waiting = append(r.Waiting, waiting...)
}

// readReview returns the review, and the text from which it was read, which updateReview compares.
func (b *Books) readReview(ctx context.Context) (stored string, r *review, err error) {
	r = &review{}
	stored, err = b.ledger.Books.Review(ctx)
	if err != nil {
		return stored, r, err
	}

	if stored != "" {
		err = json.Unmarshal([]byte(stored), r)
	}

	if err != nil {
		return stored, r, fmt.Errorf("the review of closed months: %w", err)
	}

	for i := range r.Waiting {
		r.Waiting[i].Day = archive.BusinessDay(r.Waiting[i].Day) // equal to what ClickHouse returns
	}

	if r.Verified == nil {
		r.Verified = map[string]verification{}
	}

	return stored, r, nil
}

// maxReviewAttempts bounds how often updateReview tries while other processes do the same.
const maxReviewAttempts = 5

// updateReview applies change to the stored review. It calls change again when another process has stored one in
// between.
func (b *Books) updateReview(ctx context.Context, change func(r *review)) error {
	for range maxReviewAttempts {
		stored, r, err := b.readReview(ctx)
		if err != nil {
			return err
		}

		change(r)
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("the review of closed months: %w", err)
		}

		err = b.ledger.Books.SetReview(ctx, stored, string(text))
		if !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}

	return fmt.Errorf("the review of closed months: %w", ledger.ErrConflict)
}
