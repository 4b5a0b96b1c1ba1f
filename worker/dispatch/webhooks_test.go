package dispatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
	"vendorapi/internal/webhook"
)

// publish lets an event wait for a receiver that nobody listens at.
func publish(w *Webhooks, name string) {
	w.scheduler.learn(accountOf(0), &partitions.Facts{Receiver: someAttempt(1, time.Now()).receiver}, w.ms())
	d := &partitions.Delivery{Account: accountOf(0), Key: keyOf(name), EventID: name, OccurredAt: time.Now(), Data: []byte("{}")}
	w.takePublished(&partitions.Step{Batch: name, Published: []*partitions.Delivery{d}})
}

// apply takes one result, and returns the attempt that it is of.
func apply(t *testing.T, results <-chan *Result) *attempt {
	t.Helper()
	r := <-results
	err := r.Apply()
	if err != nil {
		t.Fatal(err)
	}
	return r.attempt
}

//rule:webhooks/slow-or-dead-endpoints-never
func TestWebhooks_BeginNothingWithoutAConfirmedWrite(t *testing.T) {
	w, results := webhooks(newRole())
	publish(w, "e")

	w.confirm(time.Now().Add(-sendWithin))
	next := w.Send()
	if w.InFlight != 0 {
		t.Error("sent although another worker may own the partition")
	}
	if wait := time.Until(next); wait > fullPause {
		t.Errorf("looked at again after %s", wait)
	}

	w.confirm(time.Now().Add(time.Hour))
	w.Send()
	if w.InFlight != 1 {
		t.Error("not sent after the write was confirmed")
	}

	apply(t, results)

	w.GiveUp()
	publish(w, "f")
	w.Send()
	if w.InFlight != 0 {
		t.Error("sent while the partition is given up")
	}
}

// Owners that send at the same time share the places of the process, and take none twice.
func TestWebhooks_ShareThePlacesOfTheProcess(t *testing.T) {
	const most = 3
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	defer silent.Close()
	receiver := partitions.Receiver{URL: "http://" + silent.Addr().String(), Secret: webhook.NewSecret()}

	for range 200 { // whether two count the same places is chance
		r := newRole()
		r.settings.Concurrency = most
		ctx, end := context.WithCancel(t.Context())
		owners := make([]*Webhooks, 16)
		for i := range owners {
			owners[i], _ = webhooks(r)
			owners[i].ctx = ctx
			publishFor(owners[i], receiver, 8)
		}

		var sending sync.WaitGroup
		for _, w := range owners {
			sending.Go(func() { w.Send() })
		}

		sending.Wait()

		inFlight := 0
		for _, w := range owners {
			inFlight += w.InFlight
		}

		end()
		if inFlight != most {
			t.Fatalf("%d in flight, want the %d that have places", inFlight, most)
		}
	}
}

// publishFor lets one event wait for each of some accounts, which have the same receiver.
func publishFor(w *Webhooks, receiver partitions.Receiver, accounts int) {
	for i := range accounts {
		account := accountOf(i)
		w.scheduler.learn(account, &partitions.Facts{Receiver: receiver}, w.ms())
		d := &partitions.Delivery{Account: account, Key: keyOf("e"), EventID: "e", OccurredAt: time.Now(), Data: []byte("{}")}
		w.takePublished(&partitions.Step{Batch: account.String(), Published: []*partitions.Delivery{d}})
	}
}

// What stands in the schedule may also be after the position: sent before that is read, it would be
// sent again.
func TestWebhooks_BeginNothingUntilAllThatWasPublishedIsRead(t *testing.T) {
	w, _ := webhooks(newRole())
	w.state, w.ended = catchingUp, map[string]bool{"ended": true}
	publish(w, "ended")
	publish(w, "e")

	next := w.Send()
	if w.InFlight != 0 || time.Until(next) > fullPause {
		t.Errorf("%d sent, looked at again after %s", w.InFlight, time.Until(next))
	}

	w.caughtUp()
	w.Send()
	if w.InFlight != 1 {
		t.Errorf("%d sent, want what has not ended", w.InFlight)
	}
}

// What was not begun in time is sent once it may, to where the receiver is then, and as an attempt like any other.
func TestWebhooks_BeginLaterWhatWasNotBegun(t *testing.T) {
	r := newRole()
	w, results := webhooks(r)
	publish(w, "e")
	ev := w.scheduler.next(nil, places{free: 1}, w.ms())[0]
	w.confirm(time.Now().Add(-sendWithin))
	w.launch(w.attemptOf(ev))
	unbegun := apply(t, results)
	if unbegun.ending != 0 || testenv.Value(t, r.metrics.aborted) != 1 || w.InFlight != 0 || ev.state != queued {
		t.Fatalf("%+v", unbegun)
	}

	moved := partitions.Facts{Receiver: unbegun.receiver}
	moved.Version = 2
	w.scheduler.learn(ev.account, &moved, w.ms())
	w.confirm(time.Now().Add(time.Hour))
	w.Send()

	begun := apply(t, results)
	if begun.event != ev || begun.ending != retry || begun.number != 1 || begun.receiver.Version != 2 {
		t.Errorf("%+v", begun)
	}
}

// What was not begun in time is not sent if its deadline has passed by then, or its receiver is deleted or asks for a
// pause.
func TestWebhooks_DoNotBeginWhatIsTooLate(t *testing.T) {
	for name, change := range map[string]func(*Webhooks, *event){
		"the deadline has passed": func(_ *Webhooks, ev *event) { ev.delivery.OccurredAt = time.Now().Add(-25 * time.Hour) },
		"the URL is deleted": func(w *Webhooks, ev *event) {
			w.scheduler.learn(ev.account, &partitions.Facts{Receiver: partitions.Receiver{Version: 2}, Moved: 2, Deleted: 2}, w.ms())
		},
		"the receiver asks for a pause": func(w *Webhooks, ev *event) {
			ev.endpoint.pace.breaker.Hold = w.ms() + 60_000
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, results := webhooks(newRole())
			publish(w, "e")
			ev := w.scheduler.next(nil, places{free: 1}, w.ms())[0]
			w.confirm(time.Now().Add(-sendWithin))
			w.launch(w.attemptOf(ev))
			result := <-results
			change(w, ev)
			err := result.Apply()
			if err != nil {
				t.Fatal(err)
			}

			w.confirm(time.Now().Add(time.Hour))
			w.Send()

			if w.InFlight != 0 {
				t.Error("it is sent")
			}
		})
	}
}

// A read of Redis that fails, while the owner keeps its partition, must not be the last one of an endpoint's schedule.
func TestWebhooks_ReadAgainWhatCouldNotBeRead(t *testing.T) {
	e := testenv.New(t)
	r := newRole()
	r.ledger = e.Ledger
	w, results := webhooks(r)
	w.scheduler.learn(accountOf(0), &partitions.Facts{Scheduled: true, Receiver: someAttempt(1, time.Now()).receiver}, w.ms())
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	w.reading, w.isReading = cut, false
	w.Send()

	err := (<-results).Apply()

	if err == nil {
		t.Fatal("the read has not failed")
	}

	w.reading, w.readAgainAt = t.Context(), time.Now()
	soon := w.ms() + 1000
	if !w.scheduler.wantsRead(soon) || len(w.scheduler.reads(soon)) != 1 {
		t.Error("the schedule is not read again")
	}
}

// What can never be sent is recorded as not sent once: not if it is muted, and not besides the record
// that the receiver has no URL.
func TestWebhooks_RecordOnceWhatIsGone(t *testing.T) {
	receiver := someAttempt(1, time.Now()).receiver
	scheduled := func(name string, event delivery.EventType) *partitions.Scheduled {
		return &partitions.Scheduled{Key: keyOf(name), Due: 1, Gone: "the order is no longer stored",
			Delivery: &partitions.Delivery{Account: accountOf(0), Key: keyOf(name), EventID: name, Type: event}}
	}

	for name, c := range map[string]struct {
		facts          partitions.Facts
		atOnce, byTurn int // records
	}{
		"with a URL":    {partitions.Facts{Scheduled: true, Receiver: receiver}, 2, 2},
		"muted":         {partitions.Facts{Scheduled: true, Receiver: receiver, Muted: []delivery.EventType{delivery.ETAChanged}}, 1, 1},
		"without a URL": {partitions.Facts{Scheduled: true}, 0, 2},
	} {
		w, _ := webhooks(newRole())
		w.scheduler.learn(accountOf(0), &c.facts, w.ms())
		reads := w.scheduler.reads(w.ms())
		if len(reads) != 1 {
			t.Fatalf("%s: %d reads", name, len(reads))
		}

		w.applySchedule(reads[0], []*partitions.Scheduled{scheduled("1.2", delivery.ETAChanged), scheduled("2.2", delivery.StatusChanged)})
		if len(w.lines) != c.atOnce {
			t.Errorf("%s: %d records at once, want %d", name, len(w.lines), c.atOnce)
		}

		w.Begin(Input{}, nil)

		if len(w.lines) != c.byTurn {
			t.Errorf("%s: %d records with the turn, want %d", name, len(w.lines), c.byTurn)
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

			if l.closedReplaces {
				log[len(log)-1] = chunk
			} else {
				log = append(log, chunk)
			}

			l.commit()
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
			log = log[:min(l.entriesKept(), len(log))]
			l.commit()
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
				log = log[:min(l.entriesKept(), len(log))]
				l.commit()

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
func TestGiveUp_LetsNoSendBegin(t *testing.T) {
	w, _ := webhooks(newRole())
	if !w.mayBegin() {
		t.Fatal("nothing may begin before")
	}

	w.GiveUp()
	w.confirm(time.Now())

	if w.mayBegin() {
		t.Error("a send may begin")
	}
}

// A failed probe's line takes the place of the one before, also if that is still being written: by the step after it.
func TestAttemptLog_AFailedProbeWhileOneIsBeingWritten(t *testing.T) {
	l := &attemptLog{}
	line := func() []byte { return []byte{'p', 0, 0, 0, 1} }
	l.add(line(), true)
	l.close()
	l.add(line(), true) // the step was refused, and is planned again

	if l.closedReplaces {
		t.Error("the first line takes the place of another entry")
	}

	l.commit()
	l.close()

	if !l.closedReplaces || binary.BigEndian.Uint32(l.closed[0][1:]) != 2 {
		t.Errorf("line %v is written, in the place of the last: %v", l.closed[0], l.closedReplaces)
	}

	l.commit()
	if len(l.written) != 1 {
		t.Errorf("the log has %d entries", len(l.written))
	}
}
