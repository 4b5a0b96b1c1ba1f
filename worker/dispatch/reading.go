package dispatch

import (
	"cmp"
	"context"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/service"
)

const (
	// refreshEvery is how often endpoints are read though no note says that they have changed, should
	// a note be lost.
	refreshEvery = 30 * time.Second
	// unreadPause is until an endpoint is read again whose secret cannot be opened, or that is damaged.
	unreadPause = 10 * time.Second
	// endpointsAtOnce is how many endpoints one read is about.
	endpointsAtOnce = 256
	// readAgainAfter is until something is read again that could not be read.
	readAgainAfter = 250 * time.Millisecond
)

// A read is what a partition wants to know from Redis that no turn of its owner waits for. Its do runs in a
// goroutine of its own; a partition has one read at a time, of bounded size, so that neither a turn nor another
// partition waits for a large one.
type read struct {
	partition int

	endpoints answers[delivery.AccountID, *partitions.Facts]
	schedules answers[*scheduleRead, []*partitions.Scheduled]
	counted   answers[delivery.AccountID, partitions.Backlog]
}

func (r *read) isEmpty() bool {
	return len(r.endpoints.of)+len(r.schedules.of)+len(r.counted.of) == 0
}

// do reads, and touches nothing else.
func (r *read) do(ctx context.Context, l *partitions.Ownership) {
	r.endpoints.read(func(accounts []delivery.AccountID) ([]*partitions.Facts, error) {
		return l.EndpointFacts(ctx, r.of(accounts))
	})
	r.schedules.read(func(schedules []*scheduleRead) ([][]*partitions.Scheduled, error) {
		queries := make([]partitions.ScheduleQuery, len(schedules))
		for i, s := range schedules {
			queries[i] = s.ScheduleQuery
			queries[i].Partition = r.partition
		}
		return l.Scheduled(ctx, queries)
	})

	r.counted.read(func(accounts []delivery.AccountID) ([]partitions.Backlog, error) {
		return l.Backlogs(ctx, r.of(accounts))
	})
}

// fail lets everything count as not read.
func (r *read) fail(err error) {
	r.endpoints.fail(err)
	r.schedules.fail(err)
	r.counted.fail(err)
}

// err returns the first error; nil if there is none.
func (r *read) err() error {
	return cmp.Or(r.endpoints.err, r.schedules.err, r.counted.err)
}

// answers are what was read of each of some things.
type answers[T, R any] struct {
	of     []T
	values []R
	errs   []error // of each; its value is valid without one
	err    error   // the first of them
}

// read reads all together, or one by one if one of them is damaged: the others must not suffer from it.
func (a *answers[T, R]) read(read func([]T) ([]R, error)) {
	if len(a.of) == 0 {
		return
	}

	values, err := read(a.of)
	if err == nil {
		a.values, a.errs = values, make([]error, len(a.of))
		return
	}

	a.fail(err)
	if !partitions.Damaged(err) {
		return
	}

	for i := range a.of {
		one, err := read(a.of[i : i+1])
		a.errs[i] = err
		if err == nil {
			a.values[i] = one[0]
		}
	}
}

func (a *answers[T, R]) fail(err error) {
	a.values, a.errs, a.err = make([]R, len(a.of)), make([]error, len(a.of)), err
	for i := range a.errs {
		a.errs[i] = err
	}
}

func (r *read) of(accounts []delivery.AccountID) []partitions.EndpointAt {
	endpoints := make([]partitions.EndpointAt, len(accounts))
	for i, account := range accounts {
		endpoints[i] = partitions.EndpointAt{Partition: r.partition, Account: account}
	}
	return endpoints
}

// startRead reads what is wanted, unless a read is in progress.
func (w *Webhooks) startRead() {
	now := time.Now()
	if w.isReading || w.state == givingUp || now.Before(w.readAgainAt) {
		return
	}

	r := &read{partition: w.partition}
	r.endpoints.of, r.schedules.of, r.counted.of = w.unread.take(now), w.loads(), w.uncounted(now)
	if r.isEmpty() {
		return
	}

	w.isReading = true
	w.role.reads.Go(func() {
		err := service.Protect(w.role.metrics.panics, func() error {
			r.do(w.reading, w.role.ledger.Ownership)
			return nil
		})
		if err != nil {
			r.fail(err)
		}

		w.results <- &Result{Webhooks: w, read: r}
	})
}

// mayLoad reports whether schedules may be read: not before the owner has caught up, since what is there may be among
// the entries that are still to be read.
func (w *Webhooks) mayLoad() bool { return w.state == sending }

func (w *Webhooks) loads() []*scheduleRead {
	if !w.mayLoad() {
		return nil
	}
	return w.scheduler.reads(w.ms())
}

// applyRead takes what a read has found. What is damaged is read again after a while, so that it holds up nothing else.
func (w *Webhooks) applyRead(r *read) error {
	w.isReading = false
	err := r.err()
	if err != nil && !partitions.Damaged(err) {
		w.readAgainAt = time.Now().Add(readAgainAfter)
	}

	for i, account := range r.endpoints.of {
		problem := r.endpoints.errs[i]
		switch {
		case partitions.Damaged(problem):
			w.cannotRead(account, problem)
		case problem != nil:
			w.unread.add(account)
		case w.unread.expected[account]:
			w.learn(account, r.endpoints.values[i])
		}
	}

	for i, s := range r.schedules.of {
		problem := r.schedules.errs[i]
		switch {
		case partitions.Damaged(problem):
			w.role.log.Error("the schedule of a webhook endpoint cannot be read, what is there waits", "account", s.Account, "error", problem)
			w.scheduler.notLoaded(s.Account, w.ms(), unreadPause)
		case problem != nil:
			w.scheduler.notLoaded(s.Account, w.ms(), readAgainAfter)
		default:
			w.applySchedule(s, r.schedules.values[i])
		}
	}

	w.applyBacklogs(r)

	return err
}

// cannotRead lets an endpoint be read again after a while.
func (w *Webhooks) cannotRead(account delivery.AccountID, err error) {
	w.role.log.Error("webhook endpoint cannot be read, its events wait", "account", account, "error", err)
	w.unread.pause(account, time.Now().Add(unreadPause))
}

// applySchedule takes a part of a schedule.
func (w *Webhooks) applySchedule(s *scheduleRead, found []*partitions.Scheduled) {
	events := make([]*event, len(found))
	for i := range found {
		events[i] = fromSchedule(s.Account, found[i])
	}

	w.scheduler.loaded(s.Account, events, w.ms())

	for i, f := range found {
		// The scheduler has ended what is muted, or goes to no URL, and leaves to a later read what it has not taken.
		isTaken := events[i].state == queued
		if f.Gone != "" && isTaken {
			w.endUnsent(events[i], notSent, partitions.StateNotSent, f.Gone)
		}
	}
}

// learn takes what was read of an endpoint.
func (w *Webhooks) learn(account delivery.AccountID, f *partitions.Facts) {
	if f.Unreadable != nil {
		w.cannotRead(account, f.Unreadable)
		return
	}

	isOutdated := !w.scheduler.learn(account, f, w.ms())
	if isOutdated {
		w.unread.add(account)
		return
	}

	w.unread.done(account)
	if f.ProbeRequest != 0 {
		w.probed = append(w.probed, probed{account: account, request: f.ProbeRequest})
	}
}

// unread are the endpoints that must be read: unknown ones, and those that may have changed.
type unread struct {
	queue   fifo[delivery.AccountID]
	waiting map[delivery.AccountID]bool // those of the queue that have not been read since
	// paused are those that are to be read later, and when.
	paused map[delivery.AccountID]time.Time
	// expected are those of the read in progress. One that a turn has read since is not among them any more: what the
	// read brings is older.
	expected map[delivery.AccountID]bool

	refreshed time.Time // when all were last to be read again
}

func newUnread(refreshed time.Time) unread {
	return unread{
		waiting:   make(map[delivery.AccountID]bool),
		paused:    make(map[delivery.AccountID]time.Time),
		expected:  make(map[delivery.AccountID]bool),
		refreshed: refreshed,
	}
}

// add lets an endpoint be read.
func (u *unread) add(account delivery.AccountID) {
	delete(u.expected, account)
	if !u.waiting[account] {
		u.waiting[account] = true
		u.queue.push(account)
	}
}

// pause lets an endpoint be read later.
func (u *unread) pause(account delivery.AccountID, until time.Time) {
	u.done(account)
	u.paused[account] = until
}

// done takes note that an endpoint was read.
func (u *unread) done(account delivery.AccountID) {
	delete(u.waiting, account)
	delete(u.expected, account)
	delete(u.paused, account)
}

// take returns endpoints to be read now, which are expected from then on.
func (u *unread) take(now time.Time) (accounts []delivery.AccountID) {
	for account, until := range u.paused {
		if !now.Before(until) {
			delete(u.paused, account)
			u.add(account)
		}
	}

	for u.queue.len() > 0 && len(accounts) < endpointsAtOnce {
		account := u.queue.pop()
		if u.waiting[account] {
			delete(u.waiting, account)
			u.expected[account] = true
			accounts = append(accounts, account)
		}
	}

	return accounts
}

// next returns when the next endpoint may be read; false for none.
func (u *unread) next(now time.Time) (at time.Time, hasSome bool) {
	if u.queue.len() > 0 {
		return now, true
	}

	for _, until := range u.paused {
		if !hasSome || until.Before(at) {
			at, hasSome = until, true
		}
	}
	return at, hasSome
}
