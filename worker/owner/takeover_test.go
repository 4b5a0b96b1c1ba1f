package owner

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// tokens are those of all partitions.
func (e *env) tokens() (tokens []partitions.Token) {
	e.T.Helper()
	stored, err := e.Ledger.Ownership.Tokens(e.T.Context())
	testenv.Must(e.T, err)
	for p := range e.Ledger.Partitions() {
		token, err := stored[p].Token()
		testenv.Must(e.T, err)
		tokens = append(tokens, token)
	}
	return tokens
}

// nameOf is the name of a partition's owner.
func nameOf(token partitions.Token) string {
	name, _, _ := strings.Cut(token.Owner, " ")
	return name
}

// awaitOwners waits until each of the workers owns so many partitions.
func (e *env) awaitOwners(each int, names ...string) {
	e.T.Helper()
	e.Await(strings.Join(names, ", ")+" own their shares", func() bool {
		owned := make(map[string]int)
		for _, token := range e.tokens() {
			owned[nameOf(token)]++
		}
		return !slices.ContainsFunc(names, func(name string) bool { return owned[name] != each })
	})
}

// versions are the order's versions in the order of the stream; the creation is the first.
func (e *env) versions(o *delivery.Order) (sequences []uint32) {
	e.T.Helper()
	testenv.Must(e.T, e.Ledger.Streams.EachEntry(e.T.Context(), ledger.RoleStatus, time.Time{}, func(batch []partitions.Entry) error {
		for _, entry := range batch {
			for _, event := range entry.Events {
				if event.Order == o.ID && event.Version > 0 {
					sequences = append(sequences, delivery.Sequence(event.Version))
				}
			}
		}
		return nil
	}))

	return sequences
}

// checkOnce holds that everything was decided once: the path, one event for each version, nothing refused.
func (e *env) checkOnce(o *delivery.Order, path string) {
	e.T.Helper()
	e.AwaitSettled(ledger.RoleStatus)
	e.CheckPath(o, path)
	var want []uint32
	for i := range strings.Fields(path) {
		want = append(want, uint32(i+1))
	}

	if got := e.versions(o); !slices.Equal(got, want) {
		e.T.Errorf("events of versions %v, want %v", got, want)
	}
	if n := e.Stats(); n.RefusedUpdates != 0 || n.DeadLetters != 0 {
		e.T.Errorf("%d refused updates, %d dead letters", n.RefusedUpdates, n.DeadLetters)
	}
}

func TestTakeover_OfAKilledWorker(t *testing.T) {
	e := newEnv(t)
	dying, p := e.proxied("dying")
	e.Start(dying.Run)
	e.awaitOwners(testenv.Partitions, "dying")
	e.Start(e.role.Run)
	e.awaitOwners(testenv.Partitions/2, "dying", "w1")
	p.kill()
	orders := []*delivery.Order{e.Vendor().Order("", time.Now()), e.Vendor().Order("", time.Now()), e.order()}
	for _, o := range orders {
		e.Accept(o, time.Now())
	}

	for _, o := range orders {
		e.AwaitStatus(o, delivery.Assigned)
		e.checkOnce(o, "Searching Assigned")
	}

	e.awaitOwners(testenv.Partitions, "w1")
	e.Await("the dead worker owns nothing any more", func() bool { return len(dying.Owned()) == 0 })
}

func TestTakeover_AnOrderlyEndHandsOver(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	e.Accept(o, time.Now())
	stop := e.Start(e.role.Run)
	e.awaitOwners(testenv.Partitions, "w1")
	e.AwaitStatus(o, delivery.Assigned)
	e.AwaitSettled(ledger.RoleStatus)
	stop()
	for p, token := range e.tokens() {
		if token.Owner != "" || token.Epoch == 0 {
			t.Errorf("partition %d: %+v", p, token)
		}
	}

	workers, _, err := e.Ledger.Ownership.Workers(t.Context())
	if err != nil || len(workers) != 0 || len(e.role.Owned()) != 0 {
		t.Errorf("workers %v, %v, it owns %v", workers, err, e.role.Owned())
	}
	if s := e.Stats(); s.Unread[ledger.RoleStatus] != 0 {
		t.Errorf("%d unread although all was decided", s.Unread[ledger.RoleStatus])
	}

	e.Reach(o, delivery.PickingUp, time.Now())
	e.Start(e.newRole("w2").Run)
	e.AwaitStatus(o, delivery.PickingUp)
	e.checkOnce(o, "Searching Assigned PickingUp")
}

// What is begun when the worker is told to end is ended first: the partitions are free at once.
func TestTakeover_AnEndAmidADecisionHandsOver(t *testing.T) {
	e := newEnv(t)
	worker, p := e.proxied("ending")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	e.awaitOwners(testenv.Partitions, "ending")
	o := e.order()
	stands := make(chan struct{})
	hold := sync.OnceFunc(func() { p.freeze(); close(stands) })
	p.on(readOrders, func([]byte) fate { hold(); return passes }) // the step follows
	e.Accept(o, time.Now())
	<-stands
	end()
	p.thaw()
	testenv.Must(t, <-ended)
	e.checkFree()
	e.CheckPath(o, "Searching Assigned")
}

// A partition that is taken while the worker ends is given up again.
func TestTakeover_AnEndAmidATakeoverHandsOver(t *testing.T) {
	e := newEnv(t)
	worker, p := e.proxied("ending")
	ctx, end := context.WithCancel(t.Context())
	taking := make(chan struct{})
	hold := sync.OnceFunc(func() { p.freeze(); close(taking) })
	p.on(step, func([]byte) fate { hold(); return passes })
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	<-taking
	end()
	p.thaw()
	testenv.Must(t, <-ended)
	if taken := slices.ContainsFunc(e.tokens(), func(token partitions.Token) bool { return token.Epoch > 0 }); !taken {
		t.Error("no partition was taken")
	}

	e.checkFree()
}

// checkFree holds that no partition has an owner.
func (e *env) checkFree() {
	e.T.Helper()
	for p, token := range e.tokens() {
		if token.Owner != "" {
			e.T.Errorf("partition %d: %+v", p, token)
		}
	}
}

// A worker that stands still between its decision and its step loses its partitions. What it
// sends when it goes on changes nothing.
func TestTakeover_AHungWorkerWritesNothingWhenItGoesOn(t *testing.T) {
	e := newEnv(t)
	hung, p := e.proxied("hung")
	e.Start(hung.Run)
	e.awaitOwners(testenv.Partitions, "hung")
	o := e.order()
	stands := make(chan struct{})
	p.onAccept(func() fate { p.freeze(); close(stands); return passes })
	e.Accept(o, time.Now())
	for status := delivery.PickingUp; status <= delivery.Delivering; status++ {
		e.Reach(o, status, time.Now())
	}

	<-stands // before another worker gets its share
	e.Start(e.role.Run)
	e.AwaitStatus(o, delivery.Delivering)
	e.awaitOwners(testenv.Partitions, "w1")
	p.thaw()
	e.awaitOwners(testenv.Partitions/2, "w1", "hung") // it lives again, and has its share
	e.Reach(o, delivery.Delivered, time.Now())
	e.AwaitStatus(o, delivery.Delivered)
	e.checkOnce(o, testenv.DeliveredPath)
}

// Somebody else has become the owner: the worker lets go, and has written nothing.
func TestTakeover_AReplacedWorkerLetsGo(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	worker, p := e.proxied("replaced")
	e.Start(worker.Run)
	e.awaitOwners(testenv.Partitions, "replaced")
	e.AwaitSettled(ledger.RoleStatus)
	taken := make(chan error, 1)
	p.onAccept(func() fate {
		tokens, err := e.Ledger.Ownership.Tokens(t.Context())
		if err == nil {
			_, err = e.Ledger.Ownership.Take(t.Context(), o.ID.Partition(), tokens[o.ID.Partition()], "other")
		}
		taken <- err
		return passes
	})

	e.Accept(o, time.Now())
	testenv.Must(t, <-taken)
	e.Await("it lets go", func() bool { return !slices.Contains(worker.Owned(), o.ID.Partition()) })
	status := e.Read(o.ID).Status
	if owner := e.tokens()[o.ID.Partition()].Owner; owner == "other" && status != delivery.Searching {
		t.Errorf("the order is %s", status)
	}

	// The other one renews nothing, so it is taken for dead.
	e.AwaitStatus(o, delivery.Assigned)
	e.checkOnce(o, "Searching Assigned")
}

// The step was written and its answer lost: the partition is taken again, and nothing decided twice.
func TestTakeover_AfterALostAnswer(t *testing.T) {
	e := newEnv(t)
	worker, p := e.proxied("w1")
	e.Start(worker.Run)
	e.awaitOwners(testenv.Partitions, "w1")
	o := e.order()
	epoch := e.tokens()[o.ID.Partition()].Epoch
	p.onAccept(func() fate { return replyCut })
	e.Accept(o, time.Now())
	e.Reach(o, delivery.PickingUp, time.Now())
	e.AwaitStatus(o, delivery.PickingUp)
	e.Await("the partition was taken again", func() bool { return e.tokens()[o.ID.Partition()].Epoch > epoch })
	e.Reach(o, delivery.Delivered, time.Now())
	e.AwaitStatus(o, delivery.Delivered)
	e.checkOnce(o, testenv.DeliveredPath)
}

// What a gateway does between a decision and its step: a cancellation wins, a swap survives.
func TestTakeover_OfWhatGatewaysWriteMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name      string
		meanwhile func(*env, *delivery.Order) error
		path      string
		courier   delivery.Courier
		refused   int64
	}{
		{"a cancellation", func(e *env, o *delivery.Order) error {
			_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, o.ID, delivery.CustomerRequest, "", time.Now())
			return err
		}, "Searching Cancelled", delivery.Courier{}, 1},
		{"a swap", func(e *env, o *delivery.Order) error {
			_, err := e.Ledger.Orders.Report(t.Context(), delivery.Update{Order: o.ID, Fleet: e.Fleet.ID, Kind: delivery.KindSwap, At: time.Now(), Courier: ayse}, time.Now())
			return err
		}, "Searching Assigned", ayse, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t)
			worker, p := e.proxied("w1")
			e.Start(worker.Run)
			o := e.order()
			done := make(chan error, 1)
			p.onAccept(func() fate { done <- c.meanwhile(e, o); return passes })
			e.Accept(o, time.Now())
			testenv.Must(t, <-done)
			e.Await("the courier", func() bool { return e.Read(o.ID).Courier == c.courier })
			e.AwaitSettled(ledger.RoleStatus)
			e.CheckPath(o, c.path)
			if n := e.Stats().RefusedUpdates; n != c.refused {
				t.Errorf("%d refused updates", n)
			}
		})
	}
}

// A jump of Redis's clock moves no partition.
func TestTakeover_WhateverRedissClockSays(t *testing.T) {
	t.Parallel()

	e := &env{Env: testenv.NewWithClock(t)}
	e.vendor, e.role = e.Vendor(), e.newRole("w1")
	e.Start(e.role.Run)
	e.Start(e.newRole("w2").Run)
	e.awaitOwners(testenv.Partitions/2, "w1", "w2")
	before := e.tokens()
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		e.SetClock(time.Now().Add(ahead))
		from := e.tokens()
		e.Await("all tokens were renewed several times", func() bool {
			for p, token := range e.tokens() {
				if token.Sequence < from[p].Sequence+5 {
					return false
				}
			}
			return true
		})

		for p, token := range e.tokens() {
			if token.Owner != before[p].Owner || token.Epoch != before[p].Epoch {
				t.Errorf("Redis %s ahead: partition %d went from %+v to %+v", ahead, p, before[p], token)
			}
		}
	}
}

// An order is ended when its time has come by both clocks, the worker's and Redis's.
func TestNow_HasComeByBothClocks(t *testing.T) {
	for ahead, behind := range map[time.Duration]time.Duration{time.Hour: time.Hour, 0: 0, -time.Hour: 0} {
		r := &Role{}
		r.ahead.Store(int64(ahead))
		before := time.Now().Add(-behind)
		if now := r.earlier(); now.Before(before) || now.After(time.Now().Add(-behind)) {
			t.Errorf("this clock is ahead by %s: %s", ahead, now)
		}
	}
}

// What an earlier owner has sent and recorded is not sent again, though the position of the webhooks
// stands before it.
func TestTakeover_OfWhatIsRecordedAsSent(t *testing.T) {
	e := newHooks(t, nil)
	o := e.order()
	e.Move(o, delivery.Delivered, time.Now())
	last := e.Read(o.ID)
	w := &partitions.Wanted{Partition: o.ID.Partition()}
	for _, c := range last.Changes {
		w.Events = append(w.Events, partitions.Event{Order: o.ID, Version: c.Version})
	}

	testenv.Must(t, e.Ledger.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w}))
	e.Step(w.Partition, func(step *partitions.Step) {
		for _, d := range w.Deliveries[1:4] {
			record := partitions.AttemptRecord{At: time.Now(), State: partitions.StateDelivered, Attempt: 1, HTTPStatus: 200}
			line, _ := record.Lines(d, false)
			step.Publish(d.Account, line, true)
		}
	})

	e.start("w1")
	e.AwaitSettled(ledger.RoleWebhook)
	var sent []string
	for _, q := range e.received() {
		sent = append(sent, q.event.Data.Status)
	}

	if got := strings.Join(sent, " "); got != "Assigned Delivered" {
		t.Errorf("sent %q", got)
	}
}
