package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// MinuteActivity is what the service did in one minute, over all processes. Each
// process adds its counts with Limits.Flush: the figures are at most
// FlushMinutesEvery late, and a crash loses what was not added yet.
type MinuteActivity struct {
	At time.Time // the minute's beginning
	// Orders that were accepted, without replays, and that ended. An end whose
	// reply was lost is not counted.
	Created, Delivered, Failed, Cancelled int64
	// Refused counts refused requests of the Vendor API by error code; may be nil.
	Refused map[delivery.Code]int64
}

// Bounds of Activity.
const (
	maxActivityMinutes = 24 * 60
	activityLifetime   = 25 * time.Hour
)

// done is what is counted of orders; the letters are stored.
type done int

const (
	doneCreated done = iota
	doneDelivered
	doneFailed
	doneCancelled
	dones
)

// Fields of a minute: a letter for each outcome, the error code behind another,
// and for each process the number of its last addition.
const (
	doneFields     = "cdfx"
	refusedField   = "r"
	processField   = "p"
	processIDBytes = 8
)

// activityCodes are the error codes in a fixed order, activityIndex the way back.
// Neither changes after the start, so that they are read without a lock.
var (
	activityCodes = func() []delivery.Code {
		codes := delivery.Codes()
		slices.Sort(codes)
		return codes
	}()
	activityIndex = func() map[delivery.Code]int {
		index := make(map[delivery.Code]int, len(activityCodes))
		for i, code := range activityCodes {
			index[code] = i
		}
		return index
	}()
)

// activityCounts is what this process has counted since the last flush.
type activityCounts struct {
	done    [dones]atomic.Int64
	refused []atomic.Int64 // by activityCodes

	process string // field of this process, new with every start

	mu      sync.Mutex // held by a flush
	flushes int64
	pending []addition
}

// addition is a flush that has yet to reach Redis.
type addition struct {
	minute, number int64
	amounts        []any // field and amount by turns
}

// keptAdditions bounds what waits while Redis is unavailable: one hour at the pace
// of FlushMinutesEvery. The oldest are dropped.
const keptAdditions = 360

func newActivityCounts() *activityCounts {
	var id [processIDBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	return &activityCounts{refused: make([]atomic.Int64, len(activityCodes)), process: processField + hex.EncodeToString(id[:])}
}

// CountRefusal counts a refused request of the Vendor API. An unknown code counts
// as INTERNAL_ERROR.
func (l Limits) CountRefusal(code delivery.Code) {
	i, ok := activityIndex[code]
	if !ok {
		i = activityIndex[delivery.CodeInternal]
	}
	l.activity.refused[i].Add(1)
}

// countEnd counts an order that has just got this status, if that is its end.
func (a *activityCounts) countEnd(status delivery.Status) {
	switch status {
	case delivery.Delivered:
		a.done[doneDelivered].Add(1)
	case delivery.Failed:
		a.done[doneFailed].Add(1)
	case delivery.Cancelled:
		a.done[doneCancelled].Add(1)
	case delivery.Searching, delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering:
	}
}

// take moves what was counted to the additions that wait.
func (a *activityCounts) take(minute int64) {
	var amounts []any
	for i := range a.done {
		if n := a.done[i].Swap(0); n > 0 {
			amounts = append(amounts, doneFields[i:i+1], n)
		}
	}
	for i := range a.refused {
		if n := a.refused[i].Swap(0); n > 0 {
			amounts = append(amounts, refusedField+string(activityCodes[i]), n)
		}
	}
	if amounts == nil {
		return
	}
	a.flushes++
	a.pending = append(a.pending, addition{minute, a.flushes, amounts})
	a.pending = a.pending[max(0, len(a.pending)-keptAdditions):]
}

func (l *core) activityKey(minute int64) string {
	return l.global.keyOf(kindActivity, strconv.AppendInt(nil, minute, 10))
}

// flushActivity adds this process's counts to the current minute, and earlier ones
// to their own. A failed addition waits for the next flush; the script adds none
// twice.
func (l *core) flushActivity(ctx context.Context, now time.Time) error {
	a := l.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take(now.Unix() / 60)
	for len(a.pending) > 0 {
		next := a.pending[0]
		args := append([]any{a.process, next.number, int(activityLifetime.Seconds())}, next.amounts...)
		if _, err := l.run(ctx, "count_activity", []string{l.activityKey(next.minute)}, args...); err != nil {
			return err
		}
		a.pending = a.pending[1:]
	}
	return nil
}

// Activity returns the last 1 to 1440 minutes, the current one included, oldest
// first.
func (l Monitor) Activity(ctx context.Context, minutes int) ([]MinuteActivity, error) {
	if minutes < 1 || minutes > maxActivityMinutes {
		return nil, fmt.Errorf("activity of %d minutes: want 1 to %d", minutes, maxActivityMinutes)
	}
	first := l.now().Unix()/60 - int64(minutes) + 1
	activity := make([]MinuteActivity, minutes)
	for i := range activity {
		activity[i].At = time.Unix((first+int64(i))*60, 0).UTC()
	}
	reads, err := pipelined(ctx, l.rdb, "reading activity", activity, func(pipe redis.Pipeliner, m MinuteActivity) *redis.MapStringStringCmd {
		return pipe.HGetAll(ctx, l.activityKey(m.At.Unix()/60))
	})
	if err != nil {
		return nil, err
	}
	for i := range activity {
		activity[i].decode(reads[i].Val())
	}
	return activity, nil
}

func (m *MinuteActivity) decode(values map[string]string) {
	into := [dones]*int64{&m.Created, &m.Delivered, &m.Failed, &m.Cancelled}
	for i, to := range into {
		*to = number(values[doneFields[i:i+1]])
	}
	for field, value := range values {
		if code, ok := strings.CutPrefix(field, refusedField); ok {
			if m.Refused == nil {
				m.Refused = make(map[delivery.Code]int64)
			}
			m.Refused[delivery.Code(code)] = number(value)
		}
	}
}

// Sustained excess (spec, "Limits", rule 3; design section 4): in at least
// excessMinutes of the last excessSpan minutes more than half of an account's
// requests were refused.
const (
	excessMinutes = 5
	excessSpan    = 10
	// FlushMinutesEvery is how often a process adds its counts to Redis.
	FlushMinutesEvery = 10 * time.Second
)

// minuteCounts counts the requests of each account in this process since the last
// flush. The figures only mark an account for operators, so a crash may lose ten
// seconds of them.
type minuteCounts struct {
	mu    sync.Mutex
	byAcc map[delivery.AccountID]*minuteCount
}

type minuteCount struct{ all, refused int64 }

func (m *minuteCounts) add(account delivery.AccountID, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byAcc[account]
	if c == nil {
		if m.byAcc == nil {
			m.byAcc = make(map[delivery.AccountID]*minuteCount)
		}
		c = new(minuteCount)
		m.byAcc[account] = c
	}
	c.all++
	if refused {
		c.refused++
	}
}

func (m *minuteCounts) drain() map[delivery.AccountID]*minuteCount {
	m.mu.Lock()
	defer m.mu.Unlock()
	drained := m.byAcc
	m.byAcc = nil
	return drained
}

// Flush adds this process's counts to the current minute and marks or clears
// accounts in sustained excess. Call it every FlushMinutesEvery, and once at the
// end. After a failure the accounts' counts are lost and the activity's are kept.
func (l Limits) Flush(ctx context.Context, now time.Time) error {
	var calls []call
	for account, c := range l.minutes.drain() {
		r := l.partitionOf(account)
		calls = append(calls, call{
			keys: []string{r.keyOf(kindMinutes, account[:]), r.account(account)},
			args: []any{now.Unix() / 60, c.all, c.refused, excessSpan, excessMinutes, now.UnixMilli()},
		})
	}
	_, err := l.runAll(ctx, "count_minutes", calls)
	return errors.Join(err, l.flushActivity(ctx, now), l.flushLimitedFleets(ctx))
}
