package dispatch

import (
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

const (
	// summarizeEvery is how often operators learn what waits.
	summarizeEvery = time.Second
	// countedAtOnce is how many endpoints' schedules are counted for that; the others count as they were. Redis answers
	// everybody else later for each of them.
	countedAtOnce = 4
)

// summary is what waits for receivers, by their state.
type summary map[partitions.EndpointState]partitions.QueueStats

// uncounted returns the endpoints whose schedules are to be counted now, those that were counted least recently.
func (w *Webhooks) uncounted(now time.Time) (accounts []delivery.AccountID) {
	if now.Sub(w.countedAt) < summarizeEvery {
		return nil
	}

	w.countedAt = now

	var candidates []*endpoint
	for _, e := range w.scheduler.endpoints {
		_, hasScheduled := e.inMemoryOnly()
		if hasScheduled {
			candidates = append(candidates, e)
		} else {
			e.backlog = partitions.Backlog{}
		}
	}

	if len(candidates) == 0 {
		w.summarize(now)
		return nil
	}

	slices.SortFunc(candidates, func(a, b *endpoint) int { return a.countedAt.Compare(b.countedAt) })
	for _, e := range candidates[:min(len(candidates), countedAtOnce)] {
		e.countedAt = now
		accounts = append(accounts, e.account)
	}

	return accounts
}

func (w *Webhooks) applyBacklogs(r *read) {
	if len(r.counted.of) == 0 {
		return
	}

	for i, account := range r.counted.of {
		if r.counted.errs[i] == nil {
			w.scheduler.endpoints[account].backlog = r.counted.values[i]
		}
	}

	w.summarize(time.Now())
}

// summarize counts what waits. It is written when it has changed, and now and then, because what is stored counts
// for a while only.
func (w *Webhooks) summarize(now time.Time) {
	s := make(summary)
	for _, e := range w.scheduler.endpoints {
		if !e.waits() {
			continue
		}

		sum := s[e.state]
		sum.Endpoints++
		inMemory, _ := e.inMemoryOnly()
		sum.Events += int64(inMemory) + e.backlog.Events
		if e.pace.breaker.Open {
			sum.BreakersOpen++
		}

		oldest := e.backlog.Oldest
		if !oldest.IsZero() && (sum.Oldest.IsZero() || oldest.Before(sum.Oldest)) {
			sum.Oldest = oldest
		}

		s[e.state] = sum
	}

	isNew := !maps.Equal(s, w.writtenSummary) || now.Sub(w.summaryWrittenAt) >= partitions.SummaryEvery
	if w.summary != nil || isNew {
		w.summary = s
	}
}
