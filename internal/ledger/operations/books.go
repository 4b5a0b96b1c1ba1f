package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Books keeps in Redis what the books need (reporting/closing): the head of their log, which decides
// who comes first, the progress of the current task, the comparisons of days, the review of closed months, and the
// claims of Exclusively. Its keys begin with booksPrefix, to which only
// reporting's user has a right: neither the gateway's password nor the worker's can move the head.
type Books struct{ core *core.Client }

// NewBooks returns the calls of the books.
func NewBooks(c *core.Client) *Books { return &Books{core: c} }

func (l *Books) Key(name string) string { return core.BooksPrefix + l.core.Global.Prefix + name }

// ErrLate reports that the time of a decision is more than 30 seconds before or after Redis's clock, so
// nothing was stored.
var ErrLate = fmt.Errorf("%w: storing it took too long", delivery.ErrUnavailable)

// decisionLasts is how much time may pass between a decision's time and its being stored, so that
// nothing is added to a day that has ended a minute ago (reports with as_of).
const decisionLasts = 30 * time.Second

// change is a value to be set in the place of another.
type change struct {
	from  string        // the value that is expected; empty: the key must not exist
	to    string        // the new value; empty: the key is removed
	lasts time.Duration // until the new value expires; 0: never
	at    time.Time     // when it was decided, by Redis's clock; zero: its age is not checked
}

// set makes a change, and returns ErrConflict when another value is there. It may be repeated when
// its outcome is not known.
func (l *Books) set(ctx context.Context, key string, c change) error {
	decidedAt := int64(0)
	if !c.at.IsZero() {
		decidedAt = c.at.UnixMilli()
	}

	reply, err := core.CompareAndSet.Run(ctx, l.core.Redis, []string{key}, c.from, c.to, c.lasts.Milliseconds(), decidedAt, decisionLasts.Milliseconds()).Text()
	if err != nil {
		return core.Failed("changing "+key, err)
	}

	current, isOther := strings.CutPrefix(reply, "=")
	wasSetBefore := isOther && current == c.to // a repeated call
	if reply == "set" || wasSetBefore {
		return nil
	}
	if reply == "late" {
		return ErrLate
	}

	return fmt.Errorf("%w: %s", core.ErrConflict, key)
}

func (l *Books) get(ctx context.Context, key string) (string, error) {
	value, err := l.core.Redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, core.Failed("reading "+key, err)
}

// Head returns the last entry of the log, as MoveHead stored it; empty: there is none.
func (l *Books) Head(ctx context.Context) (string, error) { return l.get(ctx, l.Key("head")) }

// MoveHead puts the next head in the place of the one that Head returned. decided is Redis's time at
// which the entry was made; zero: it was decided before, and is only repeated here. The error is
// ErrConflict when another process was earlier, and ErrLate when decided is more than
// 30 seconds from Redis's clock.
// After any other error it is not known whether the head was moved.
func (l *Books) MoveHead(ctx context.Context, from, to string, decided time.Time) error {
	return l.set(ctx, l.Key("head"), change{from: from, to: to, at: decided})
}

// progressLasts is how long it is known what became of a task.
const progressLasts = 30 * 24 * time.Hour

// Progress returns what SetProgress stored last; empty: nothing in the last 30 days.
func (l *Books) Progress(ctx context.Context) (string, error) { return l.get(ctx, l.Key("progress")) }

// SetProgress replaces what Progress returned: how far the task in progress has got, or how the last one
// ended. The error is ErrConflict when another process has replaced it since.
func (l *Books) SetProgress(ctx context.Context, from, to string) error {
	return l.set(ctx, l.Key("progress"), change{from: from, to: to, lasts: progressLasts})
}

// comparisonLasts is how long the comparisons of a day are kept: longer than its month can stay open.
const comparisonLasts = 400 * 24 * time.Hour

func (l *Books) comparisonKey(day string) string { return l.Key("compared:" + day) }

// Comparisons returns what SetComparison stored of each day, such as 2026-11-03; empty: nothing.
func (l *Books) Comparisons(ctx context.Context, days []string) ([]string, error) {
	keys := make([]string, len(days))
	for i, day := range days {
		keys[i] = l.comparisonKey(day)
	}

	stored, err := l.core.Redis.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, core.Failed("reading comparisons", err)
	}

	all := make([]string, len(days))
	for i := range stored {
		all[i] = core.Text(stored[i])
	}

	return all, nil
}

// SetComparison replaces what Comparisons returned of a day. The error is ErrConflict when another
// process has replaced it since.
func (l *Books) SetComparison(ctx context.Context, day, from, to string) error {
	return l.set(ctx, l.comparisonKey(day), change{from: from, to: to, lasts: comparisonLasts})
}

// Review returns what SetReview stored last; empty: nothing yet.
func (l *Books) Review(ctx context.Context) (string, error) { return l.get(ctx, l.Key("review")) }

// SetReview stores what the nightly work knows of closed months in the place of from, which Review returned. The
// error is ErrConflict when another process has stored something since.
func (l *Books) SetReview(ctx context.Context, from, to string) error {
	return l.set(ctx, l.Key("review"), change{from: from, to: to})
}
