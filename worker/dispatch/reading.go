package dispatch

import (
	"cmp"
	"context"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

const (
	// refreshEvery is how often endpoints are read though no note says that they have changed, should
	// a note be lost.
	refreshEvery = 30 * time.Second
	// unreadPause is until an endpoint is read again whose secret cannot be opened.
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

	endpoints []delivery.AccountID
	facts     []*ledger.Facts

	schedules []*scheduleRead
	scheduled [][]*ledger.Scheduled // of each; nil after an error

	counted  []delivery.AccountID
	backlogs []ledger.Backlog

	err error
}

func (r *read) isEmpty() bool { return len(r.endpoints)+len(r.schedules)+len(r.counted) == 0 }

// do reads, and touches nothing else. After an error it has what it could read.
func (r *read) do(ctx context.Context, l ledger.Ownership) {
	var errs [3]error
	if len(r.endpoints) > 0 {
		r.facts, errs[0] = l.EndpointFacts(ctx, r.of(r.endpoints))
		if errs[0] != nil {
			r.facts = nil
		}
	}
	if len(r.schedules) > 0 {
		queries := make([]ledger.ScheduleQuery, len(r.schedules))
		for i, s := range r.schedules {
			queries[i] = s.ScheduleQuery
			queries[i].Partition = r.partition
		}
		r.scheduled, errs[1] = l.Scheduled(ctx, queries)
		if errs[1] != nil {
			r.scheduled = nil
		}
	}
	if len(r.counted) > 0 {
		r.backlogs, errs[2] = l.Backlogs(ctx, r.of(r.counted))
		if errs[2] != nil {
			r.backlogs = nil
		}
	}
	r.err = cmp.Or(errs[0], errs[1], errs[2])
}

func (r *read) of(accounts []delivery.AccountID) []ledger.EndpointAt {
	endpoints := make([]ledger.EndpointAt, len(accounts))
	for i, account := range accounts {
		endpoints[i] = ledger.EndpointAt{Partition: r.partition, Account: account}
	}
	return endpoints
}

// startRead reads what is wanted, unless a read is in progress.
func (w *Webhooks) startRead() {
	now := time.Now()
	if w.isReading || w.state == givingUp || now.Before(w.readAgainAt) {
		return
	}
	r := &read{
		partition: w.partition,
		endpoints: w.unread.take(now),
		schedules: w.loads(),
		counted:   w.uncounted(now),
	}
	if r.isEmpty() {
		return
	}

	w.isReading = true
	w.role.reads.Go(func() {
		err := service.Protect(w.role.metrics.panics, func() error {
			r.do(w.reading, w.role.ledger.Ownership)
			return nil
		})
		r.err = cmp.Or(r.err, err)
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

// applyRead takes what a read has found.
func (w *Webhooks) applyRead(r *read) error {
	now := w.ms()
	w.isReading = false
	if r.err != nil {
		w.readAgainAt = time.Now().Add(readAgainAfter)
	}

	for i, account := range r.endpoints {
		switch {
		case r.facts == nil:
			w.unread.add(account)
		case w.unread.expected[account]:
			w.learn(account, r.facts[i])
		}
	}
	for i, s := range r.schedules {
		if r.scheduled == nil {
			w.scheduler.notLoaded(s.Account, now)
		} else {
			w.loaded(s, r.scheduled[i])
		}
	}
	w.applyBacklogs(r)
	return r.err
}

// loaded takes a part of a schedule.
func (w *Webhooks) loaded(s *scheduleRead, found []*ledger.Scheduled) {
	events := make([]*event, len(found))
	for i := range found {
		events[i] = loaded(s.Account, found[i])
	}
	w.scheduler.loaded(s.Account, events, w.ms())

	for i, f := range found {
		// The scheduler has ended what is muted, or goes to no URL, and leaves to a later read what it has not taken.
		isTaken := events[i].state == queued
		if f.Gone != "" && isTaken {
			w.end(events[i], notSent, ledger.StateNotSent, f.Gone)
		}
	}
}

// learn takes what was read of an endpoint.
func (w *Webhooks) learn(account delivery.AccountID, f *ledger.Facts) {
	if f.Unreadable != nil {
		w.role.log.Error("webhook endpoint cannot be read, its events wait", "account", account, "error", f.Unreadable)
		w.unread.pause(account, time.Now().Add(unreadPause))
		return
	}

	isOlderThanWritten := !w.scheduler.learn(account, f, w.ms())
	if isOlderThanWritten {
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
