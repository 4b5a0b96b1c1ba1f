package limits

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// MinuteActivity is what all processes did in one minute. A crash loses what Limits.Flush
// has not added yet.
type MinuteActivity struct {
	At time.Time // the minute's beginning
	// Accepted orders without replays, and ends but those whose reply was lost.
	Created, Delivered, Failed, Cancelled int64
	// Refused counts refused requests of the Vendor API by error code; may be nil.
	Refused map[delivery.Code]int64
}

const (
	maxActivityMinutes = 24 * 60
	activityLifetime   = 25 * time.Hour
)

// Fields of a minute besides orderFields, and of each process its last addition.
const (
	refusedField = "r"
	processField = "p"
)

// orderFields are the counts of orders by their status; Searching is a creation.
var orderFields = map[delivery.Status]string{delivery.Searching: "c", delivery.Delivered: "d", delivery.Failed: "f", delivery.Cancelled: "x"}

var refusedFields = func() map[delivery.Code]string {
	fields := map[delivery.Code]string{}
	for _, code := range delivery.Codes() {
		fields[code] = refusedField + string(code)
	}
	return fields
}()

// activityCounts is what this process has counted since the last flush.
type activityCounts struct {
	mu       sync.Mutex
	accounts map[delivery.AccountID]minuteCount
	fields   map[string]int64 // of the minute

	process  string     // field of this process, new with every start
	flushing sync.Mutex // guards what follows
	flushes  int64
	Pending  []addition
}

// minuteCount is an account's requests, to mark it; a crash may lose ten seconds.
type minuteCount struct{ all, refused int64 }

type addition struct {
	minute, Number int64
	amounts        []any // field and amount by turns
}

// KeptAdditions bounds what waits for Redis, an hour's; the oldest are dropped.
const KeptAdditions = 360

func newActivityCounts() *activityCounts {
	a := &activityCounts{process: processField + rand.Text()}
	a.Drain()
	return a
}

func (a *activityCounts) request(account delivery.AccountID, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.accounts[account]
	c.all++
	if refused {
		c.refused++
	}

	a.accounts[account] = c
}

// Reached counts an order that has reached a status, in the current minute.
func (l *Limits) Reached(status delivery.Status) { l.Counts.reached(status) }

func (a *activityCounts) reached(status delivery.Status) { a.add(orderFields[status]) }

func (a *activityCounts) add(field string) {
	if field != "" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.fields[field]++
	}
}

func (a *activityCounts) Drain() (accounts map[delivery.AccountID]minuteCount, fields map[string]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	accounts, fields = a.accounts, a.fields
	a.accounts, a.fields = map[delivery.AccountID]minuteCount{}, map[string]int64{}
	return accounts, fields
}

// CountRefusal counts a refused request of the Vendor API. An unknown code counts
// as INTERNAL_ERROR.
func (l *Limits) CountRefusal(code delivery.Code) {
	l.Counts.add(cmp.Or(refusedFields[code], refusedFields[delivery.CodeInternal]))
}

func ActivityKey(global core.Partition, minute int64) string {
	return global.KeyOf(core.KindActivity, strconv.AppendInt(nil, minute, 10))
}

// flushActivity keeps what fails for the next flush; the script adds nothing twice.
func (l *Limits) flushActivity(ctx context.Context, now time.Time, fields map[string]int64) error {
	a := l.Counts
	a.flushing.Lock()
	defer a.flushing.Unlock()
	if len(fields) > 0 {
		a.flushes++
		next := addition{minute: now.Unix() / 60, Number: a.flushes}
		for field, n := range fields {
			next.amounts = append(next.amounts, field, n)
		}
		a.Pending = append(a.Pending, next)
		a.Pending = a.Pending[max(0, len(a.Pending)-KeptAdditions):]
	}

	for len(a.Pending) > 0 {
		next := a.Pending[0]
		args := append([]any{a.process, next.Number, int(activityLifetime.Seconds())}, next.amounts...)
		if _, err := l.core.Run(ctx, "count_activity", []string{ActivityKey(l.core.Global, next.minute)}, args...); err != nil {
			return err
		}
		a.Pending = a.Pending[1:]
	}

	return nil
}

// Activity returns the last 1 to 1440 minutes with the current one, oldest first.
func (l *Limits) Activity(ctx context.Context, minutes int) ([]MinuteActivity, error) {
	if minutes < 1 || minutes > maxActivityMinutes {
		return nil, fmt.Errorf("activity of %d minutes: want 1 to %d", minutes, maxActivityMinutes)
	}

	first := l.core.Now().Unix()/60 - int64(minutes) + 1
	activity := make([]MinuteActivity, minutes)
	for i := range activity {
		activity[i].At = time.Unix((first+int64(i))*60, 0).UTC()
	}

	counts, err := core.Pipelined(ctx, l.core.Redis, "reading activity", activity, func(pipe redis.Pipeliner, m MinuteActivity) func() map[string]string {
		return pipe.HGetAll(ctx, ActivityKey(l.core.Global, m.At.Unix()/60)).Val
	})
	if err != nil {
		return nil, err
	}

	for i := range activity {
		activity[i].decode(counts[i])
	}

	return activity, nil
}

func (m *MinuteActivity) decode(values map[string]string) {
	count := func(status delivery.Status) int64 { return core.ParseNumber(values[orderFields[status]]) }
	m.Created, m.Delivered = count(delivery.Searching), count(delivery.Delivered)
	m.Failed, m.Cancelled = count(delivery.Failed), count(delivery.Cancelled)
	for field, value := range values {
		if code, ok := strings.CutPrefix(field, refusedField); ok {
			if m.Refused == nil {
				m.Refused = make(map[delivery.Code]int64)
			}
			m.Refused[delivery.Code(code)] = core.ParseNumber(value)
		}
	}
}

// Sustained excess (spec, "Limits", rule 3; decisions, "Limits and idempotency"): in at least excessMinutes of the
// last excessSpan minutes more than half of an account's requests were refused.
const (
	ExcessMinutes = 5
	ExcessSpan    = 10
	// FlushMinutesEvery is how often a process adds its counts to Redis.
	FlushMinutesEvery = 10 * time.Second
)

// Flush adds this process's counts to the minute and marks accounts in sustained excess,
// every FlushMinutesEvery and at the end. A failure loses the accounts' counts only.
func (l *Limits) Flush(ctx context.Context, now time.Time) error {
	accounts, fields := l.Counts.Drain()
	var calls []core.Call
	for account, c := range accounts {
		r := l.core.PartitionOf(account)
		calls = append(calls, core.Call{
			Keys: []string{r.KeyOf(core.KindMinutes, account[:]), r.Account(account), r.List(core.ListExcess)},
			Args: []any{now.Unix() / 60, c.all, c.refused, ExcessSpan, ExcessMinutes, now.UnixMilli(), account[:]},
		})
	}

	_, err := l.core.RunAll(ctx, "count_minutes", calls)

	return errors.Join(err, l.flushActivity(ctx, now, fields))
}
