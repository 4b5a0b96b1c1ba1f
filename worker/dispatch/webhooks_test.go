package dispatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// placed is an event that only waits to be sent to a receiver nobody listens at.
func placed(w *Webhooks, name string) {
	w.scheduler.Learn(accountOf(0), &ledger.Facts{Receiver: someAttempt(1, time.Now()).receiver}, w.ms())
	d := &ledger.Delivery{Account: accountOf(0), Key: keyOf(name), EventID: name, OccurredAt: time.Now(), Data: []byte("{}")}
	w.Publish(name, []*ledger.Delivery{d})
}

//rule:webhooks/slow-or-dead-endpoints-never
func TestWebhooks_BeginNothingWithoutAConfirmedWrite(t *testing.T) {
	w, results := webhooks(newRole())
	placed(w, "e")
	w.Confirm(time.Now().Add(-sendWithin))
	if w.Send(); w.InFlight != 0 {
		t.Error("sent although another worker may own the partition")
	}
	if w.Wake() != fullPause {
		t.Errorf("looked at again after %s", w.Wake())
	}
	w.Confirm(time.Now().Add(time.Hour))
	if w.Send(); w.InFlight != 1 {
		t.Error("not sent after the write was confirmed")
	}
	w.Done(<-results)
	w.Stopped = true
	placed(w, "f")
	if w.Send(); w.InFlight != 0 {
		t.Error("sent while it leaves")
	}
}

// What stands in the schedule may also be after the position: sent before that is read, it would be
// sent again.
func TestWebhooks_BeginNothingUntilAllThatWasPublishedIsRead(t *testing.T) {
	w, _ := webhooks(newRole())
	w.ended = map[string]bool{"ended": true}
	w.Confirm(time.Now().Add(time.Hour))
	placed(w, "ended")
	placed(w, "e")
	if w.Send(); w.InFlight != 0 || w.Wake() != fullPause {
		t.Errorf("%d sent, looked at again after %s", w.InFlight, w.Wake())
	}
	w.CaughtUp()
	if w.Send(); w.InFlight != 1 {
		t.Errorf("%d sent, want what has not ended", w.InFlight)
	}
}

// What was not begun in time goes first once it may, to where the receiver is then.
func TestWebhooks_BeginLaterWhatWasNotBegun(t *testing.T) {
	r := newRole()
	w, results := webhooks(r)
	placed(w, "e")
	item := w.scheduler.Next(nil, 1, w.ms())[0]
	w.Confirm(time.Now().Add(-sendWithin))
	w.launch(&attempt{Delivery: item.Delivery, item: item, number: 1, receiver: item.endpoint.Receiver})
	s := <-results
	if w.Done(s); s.attempt.ending != 0 || testenv.Value(t, r.metrics.aborted) != 1 || w.InFlight != 0 || item.state != flying {
		t.Fatalf("%+v", s.attempt)
	}
	moved := ledger.Facts{Receiver: s.attempt.receiver}
	moved.Version = 2
	w.scheduler.Learn(item.Account, &moved, w.ms())
	w.Confirm(time.Now().Add(time.Hour))
	w.Send()
	s = <-results
	if w.Done(s); s.attempt.item != item || s.attempt.ending != Retry || s.attempt.receiver.Version != 2 || item.Version != 2 {
		t.Errorf("%+v", s.attempt)
	}
}

// A read of Redis that fails, while the owner keeps its partition, must not be the last one of an endpoint's schedule.
func TestFetch_ReadsAgainWhatCouldNotBeRead(t *testing.T) {
	e := testenv.New(t)
	r := newRole()
	r.ledger = e.Ledger
	w, _ := webhooks(r)
	w.scheduler.Learn(accountOf(0), &ledger.Facts{Scheduled: true, Receiver: someAttempt(1, time.Now()).receiver}, w.ms())
	w.summaryAt = time.Now() // nothing else is to be read
	cut, cancel := context.WithCancel(t.Context())
	cancel()

	err := r.Fetch(cut, []*Webhooks{w})

	if err == nil {
		t.Fatal("the read has not failed")
	}
	soon := w.ms() + 1000
	if wake := w.scheduler.Wake(w.ms()); wake > soon {
		t.Errorf("nothing is read again before %d, want by %d", wake, soon)
	}
	if loads := w.scheduler.Loads(soon); len(loads) != 1 {
		t.Errorf("%d parts of schedules are read again, want 1", len(loads))
	}
}

// What can never be sent is recorded as not sent once: not if it is muted, and not besides the record
// that the receiver has no URL.
func TestWebhooks_RecordOnceWhatIsGone(t *testing.T) {
	receiver := someAttempt(1, time.Now()).receiver
	scheduled := func(name string, event delivery.EventType) *ledger.Scheduled {
		return &ledger.Scheduled{Key: keyOf(name), Due: 1, Gone: "the order is no longer stored",
			Delivery: &ledger.Delivery{Account: accountOf(0), Key: keyOf(name), EventID: name, Type: event}}
	}
	for name, c := range map[string]struct {
		facts          ledger.Facts
		atOnce, byStep int // records
	}{
		"with a URL":    {ledger.Facts{Scheduled: true, Receiver: receiver}, 2, 2},
		"muted":         {ledger.Facts{Scheduled: true, Receiver: receiver, Muted: []delivery.EventType{delivery.ETAChanged}}, 1, 1},
		"without a URL": {ledger.Facts{Scheduled: true}, 0, 2},
	} {
		w, _ := webhooks(newRole())
		w.scheduler.Learn(accountOf(0), &c.facts, w.ms())
		if loads := w.scheduler.Loads(w.ms()); len(loads) != 1 {
			t.Fatalf("%s: %d loads", name, len(loads))
		}
		w.loaded(accountOf(0), []*ledger.Scheduled{scheduled("1.2", delivery.ETAChanged), scheduled("2.2", delivery.StatusChanged)})
		if len(w.lines) != c.atOnce {
			t.Errorf("%s: %d records at once, want %d", name, len(w.lines), c.atOnce)
		}
		w.Write(new(ledger.Step))
		if len(w.written) != c.byStep {
			t.Errorf("%s: %d records with the step, want %d", name, len(w.written), c.byStep)
		}
	}
}

// entries are what a log holds after it was given lines: a number is an attempt's, p a failed
// probe's, | a step.
func entries(t *testing.T, given string) (log []string) {
	l, count := &attemptLog{account: delivery.AccountID{}}, 0
	step := func() {
		for done := false; !done; {
			done = l.close()
			var chunk string
			for _, line := range l.closed {
				chunk += string(line[:1])
				if line[0] == 'p' {
					chunk += fmt.Sprint(binary.BigEndian.Uint32(line[1:]))
				}
			}
			if l.again {
				log[len(log)-1] = chunk
			} else {
				log = append(log, chunk)
			}
			l.wrote()
		}
	}
	for _, c := range []byte(given) {
		if c == '|' {
			step()
			continue
		}
		l.add([]byte{c, 0, 0, 0, 1}, c == 'p')
		count++
	}
	if len(l.written) != len(log) {
		t.Errorf("%d entries are known, %d were written", len(l.written), len(log))
	}
	return log
}

func TestAttemptLog_ProbesInARowShareALine(t *testing.T) {
	for given, want := range map[string][]string{
		"12|":         {"12"},
		"12|3|":       {"12", "3"},
		"pp|":         {"p2"},
		"1p|":         {"1", "p1"},
		"1ppp|p|p|":   {"1", "p5"},
		"p|p1|":       {"p2", "1"},
		"p|pp1p|pp2|": {"p3", "1", "p3", "2"},
		"p1|p|":       {"p11", "p1"},
	} {
		if got := entries(t, given); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}

// A log keeps at least 200 lines, or as many as 256 kB hold, and hardly more.
func TestAttemptLog_KeepsTheNewest(t *testing.T) {
	for name, c := range map[string]struct{ line, atOnce, fewest, most int }{
		"one line at once":       {100, 1, 200, 200},
		"sixteen at once":        {100, 16, 200, 215},
		"long answers":           {2300, 1, 113, 113},
		"sixteen long answers":   {2300, 16, 98, 113},
		"longer than the bounds": {logBytes + 1, 1, 1, 1},
	} {
		l := &attemptLog{}
		var log []chunk
		for range 300 {
			for range c.atOnce {
				l.add(make([]byte, c.line), false)
			}
			l.close()
			log = append([]chunk{chunkOf(l.closed)}, log...)
			log = log[:min(l.kept(), len(log))]
			l.wrote()
		}
		var sum chunk
		for _, one := range log {
			sum.lines, sum.bytes = sum.lines+one.lines, sum.bytes+one.bytes
		}
		if sum.lines < c.fewest || sum.lines > c.most || sum.bytes > max(logBytes, c.line+lineOverhead) || len(l.written) != len(log) {
			t.Errorf("%s: %d lines of %d bytes in %d entries, of which it knows %d", name, sum.lines, sum.bytes, len(log), len(l.written))
		}
	}
}

// However many lines come at once, and however often owners change, the log has at most its bytes.
func TestAttemptLog_NeverHoldsMoreThanItsBytes(t *testing.T) {
	for name, c := range map[string]struct{ line, atOnce, writes, atLeast int }{
		"one long line at once":         {3300, 1, 60, logBytes/2 - 3303},
		"a burst of long lines":         {3300, 1000, 3, logBytes/2 - 3303},
		"owners that write very little": {3300, 10, 1, logBytes/2 - 33_030},
		"short lines":                   {100, 16, 40, 200 * 103},
	} {
		var log []int // the bytes of its entries, the newest first
		trim := func(most int) {
			sum := 0
			for i, bytes := range log {
				sum += bytes
				if sum > most {
					log = log[:i]
					return
				}
			}
		}
		for owner := range 12 {
			l := &attemptLog{}
			for range c.writes {
				for range c.atOnce {
					l.add(make([]byte, c.line), false)
				}
				l.close()
				if len(l.written) == 0 {
					trim(logBytes - l.limit())
				}
				log = append([]int{chunkOf(l.closed).bytes}, log...)
				log = log[:min(l.kept(), len(log))]
				l.wrote()

				bytes := 0
				for _, one := range log {
					bytes += one
				}
				if bytes > logBytes || owner > 5 && bytes < c.atLeast {
					t.Fatalf("%s: the log has %d bytes in %d entries with owner %d", name, bytes, len(log), owner)
				}
			}
		}
	}
}

// What is still being connected when its partition is given up does not begin, also while the write that frees
// the partition is being confirmed.
func TestLeave_LetsNoSendBegin(t *testing.T) {
	w, _ := webhooks(newRole())
	if !w.mayStart() {
		t.Fatal("nothing may begin before")
	}

	w.Leave()
	w.Confirm(time.Now())

	if w.mayStart() {
		t.Error("a send may begin")
	}
}
