package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/orders"
)

const (
	// housekeepingLook is how often it is looked whether a round of housekeeping is due.
	housekeepingLook = time.Second
	// memoryInterval is how often the servers are asked for their memory, and how often rounds begin
	// while one of them is nearly full.
	memoryInterval = 5 * time.Second
	// accountsInterval is how often accounts' own streams are trimmed at most, which is only done
	// because a server is nearly full.
	accountsInterval = 30 * time.Second
	// reportInterval is how often it is logged that a nearly full server cannot be relieved.
	reportInterval = 5 * time.Minute

	// retiredAtOnce is how many orders are retired before it is looked whether to go on.
	retiredAtOnce = 2000
	// pagesPerVisit bounds a visit to a partition, so that the others have their turn. What is left
	// is done in the next round, which then follows at once.
	pagesPerVisit = 10
	// visitsAtOnce is how many partitions are visited at the same time: their writes share Redis's
	// flushes to the disk, and those of a master that is away hold up only some of the others.
	visitsAtOnce = 4
)

// housekeeping removes what is past its time from the partitions that owned lists: in rounds over all
// of them, every status.housekeeping_interval, and without a pause while there is more to do. While
// the memory of a Redis server is nearly full, which is when it matters, rounds begin every
// memoryInterval, and go further.
//
// Nothing that it does needs memory (Operations.WhenFull in package orders), so a full Redis becomes less full
// as soon as anything in it is past its time.
type housekeeping struct {
	*Role
	owned func() []int
	now   func() time.Time

	roundBegan      time.Time // the last one; zero: there was none
	hasMore         bool      // the last round has left something to do
	memoryRead      time.Time // when the servers were asked for their memory
	nearlyFull      []ledger.Server
	accountsDue     bool // a server was nearly full since accounts' streams were trimmed
	accountsTrimmed time.Time
	vainRounds      int       // the last rounds that have removed nothing from a nearly full Redis
	reported        time.Time // when the log was told that nothing more can be removed

	memoryFailure, roundFailure, accountsFailure error // of the last time that each was tried
}

// look does the rounds that are due. It returns what has failed the last time that it was tried, also
// when nothing was due: a failure lasts until the same succeeds.
func (h *housekeeping) look(ctx context.Context) error {
	h.readMemory(ctx)
	h.doRounds(ctx)
	h.trimAccounts(ctx)
	return errors.Join(h.memoryFailure, h.roundFailure, h.accountsFailure)
}

// doRounds begins rounds until none is due, or one fails: then the next look goes on.
func (h *housekeeping) doRounds(ctx context.Context) {
	for h.isDue() && ctx.Err() == nil {
		var removed int64
		removed, h.roundFailure = h.round(ctx)
		if h.roundFailure != nil {
			return
		}

		if removed > 0 || len(h.nearlyFull) == 0 || len(h.owned()) == 0 {
			h.vainRounds = 0
			continue
		}

		h.vainRounds++
		if h.vainRounds > 1 {
			h.reportStuck(ctx)
		}
	}
}

// trimAccounts trims the accounts' own streams after a server was found nearly full, even if there
// is room again by then.
func (h *housekeeping) trimAccounts(ctx context.Context) {
	partitions := h.owned()
	if !h.accountsDue || time.Since(h.accountsTrimmed) < h.accountsInterval || len(partitions) == 0 {
		return
	}

	h.accountsDue, h.accountsTrimmed = false, time.Now()
	h.accountsFailure = h.visitEach(partitions, func(partition int) error {
		trimmed, err := h.ledger.Streams.TrimAccounts(ctx, partition)
		h.metrics.trimmed.Add(float64(trimmed))
		return err
	})
}

// isDue reports whether a round is to begin now.
func (h *housekeeping) isDue() bool {
	interval := h.settings.HousekeepingInterval
	if len(h.nearlyFull) > 0 {
		interval = min(interval, memoryInterval)
	}
	return h.hasMore || h.roundBegan.IsZero() || time.Since(h.roundBegan) >= interval
}

// readMemory learns which servers are nearly full, of those that answer.
func (h *housekeeping) readMemory(ctx context.Context) {
	if time.Since(h.memoryRead) < memoryInterval {
		return
	}

	h.memoryRead = time.Now()
	servers, err := h.ledger.Monitor.Memory(ctx)
	h.nearlyFull, h.memoryFailure = nil, nil
	for _, s := range servers {
		if s.IsNearlyFull() {
			h.nearlyFull = append(h.nearlyFull, s)
			h.accountsDue = true
		}
	}

	if err != nil {
		h.memoryFailure = fmt.Errorf("reading the memory of Redis: %w", err)
	}
}

// round visits each owned partition, also after one for which it fails, and returns how many orders
// and entries it has removed.
func (h *housekeeping) round(ctx context.Context) (removed int64, err error) {
	partitions := h.owned()
	h.roundBegan, h.hasMore = time.Now(), false
	var mu sync.Mutex // guards removed and h.hasMore
	err = h.visitEach(partitions, func(partition int) error {
		visit := visit{Role: h.Role, partition: partition, now: h.now()}
		failure := visit.tidy(ctx)

		mu.Lock()
		defer mu.Unlock()
		removed += visit.removed
		h.hasMore = h.hasMore || visit.hasMore

		return failure
	})

	_, _, failure := h.countKept(ctx, partitions)

	return removed, errors.Join(err, failure)
}

// visitEach does a task for each partition as Role.each does, for some of them at the same time.
func (h *housekeeping) visitEach(partitions []int, task func(partition int) error) error {
	var visits errgroup.Group
	visits.SetLimit(visitsAtOnce)
	for _, p := range partitions {
		visits.Go(func() error { return h.each([]int{p}, task) })
	}
	return visits.Wait()
}

// countKept shows how many orders the owned partitions keep, and when the next of them is past its
// retention; zero: none has ended. After an error it has what could be read.
func (h *housekeeping) countKept(ctx context.Context, partitions []int) (sum orders.Kept, next time.Time, err error) {
	kept, err := h.ledger.Orders.Kept(ctx, partitions)
	if err != nil {
		err = fmt.Errorf("counting orders: %w", err)
	}

	for _, k := range kept {
		sum.Live += k.Live
		sum.Ended += k.Ended
		if !k.FirstEnded.IsZero() && (sum.FirstEnded.IsZero() || k.FirstEnded.Before(sum.FirstEnded)) {
			sum.FirstEnded = k.FirstEnded
		}
	}

	if !sum.FirstEnded.IsZero() {
		next = sum.FirstEnded.Add(h.settings.Retention)
	}

	h.metrics.showKept(sum, next)

	return sum, next, err
}

// reportStuck logs, now and then, that a nearly full server has nothing more that could be removed:
// how much is kept, when the next of it will be past its time, and who has yet to read what.
func (h *housekeeping) reportStuck(ctx context.Context) {
	if time.Since(h.reported) < reportInterval {
		return
	}

	sum, next, _ := h.countKept(ctx, h.owned()) // the round has logged what cannot be read
	var servers []string
	for _, s := range h.nearlyFull {
		servers = append(servers, fmt.Sprintf("%s uses %d of %d bytes", s.Addr, s.MemoryUsed, s.MemoryMax))
	}

	var unread []string
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook, ledger.RoleExport} {
		lag, err := h.ledger.Streams.Lag(ctx, role)
		if err == nil && lag.Entries > 0 {
			unread = append(unread, fmt.Sprintf("%s: %d entries since %s", role, lag.Entries, lag.Oldest.UTC().Format(time.RFC3339)))
		}
	}

	nextPast := "none"
	if !next.IsZero() {
		nextPast = next.UTC().Format(time.RFC3339)
	}

	h.reported = time.Now()
	h.log.Warn("Redis is nearly full, and nothing in this worker's partitions is past its time and read by all",
		"servers", strings.Join(servers, ", "), "orders not ended", sum.Live, "orders ended", sum.Ended,
		"next order past its retention", nextPast, "unread", strings.Join(unread, ", "))
}

// visit is one round's work in a partition.
type visit struct {
	*Role
	partition int
	now       time.Time

	removed int64 // orders and entries, shrunk ones included
	hasMore bool  // it ended before all was done
}

// tidy trims what every group has settled, retires ended orders past their retention and shrinks the
// others. It begins with what makes the most room.
func (v *visit) tidy(ctx context.Context) error {
	trimmed, err := v.ledger.Streams.Trim(ctx, v.partition, v.settings.StreamRetention)
	v.metrics.trimmed.Add(float64(trimmed))
	v.removed += trimmed
	if err != nil {
		return fmt.Errorf("trim: %w", err)
	}

	if err := v.retire(ctx); err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	if err := v.shrink(ctx); err != nil {
		return fmt.Errorf("shrink: %w", err)
	}

	return nil
}

func (v *visit) retire(ctx context.Context) error {
	endedBefore := v.now.Add(-v.settings.Retention)
	for range pagesPerVisit {
		retired, err := v.ledger.Orders.Retire(ctx, v.partition, endedBefore, retiredAtOnce)
		v.metrics.retired.Add(float64(retired))
		v.removed += int64(retired)
		if err != nil || retired < retiredAtOnce {
			return err
		}
	}

	v.hasMore = true

	return nil
}

func (v *visit) shrink(ctx context.Context) error {
	endedBefore := v.now.Add(-v.settings.ShrinkAfter)
	for range pagesPerVisit {
		looked, err := v.ledger.Orders.Shrink(ctx, v.partition, endedBefore)
		v.removed += int64(looked)
		if err != nil || looked == 0 {
			return err
		}
	}

	v.hasMore = true

	return nil
}
