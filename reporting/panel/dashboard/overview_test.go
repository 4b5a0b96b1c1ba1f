package dashboard

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/reporting/archive"
)

func TestOverview_CountsWhatHappened(t *testing.T) {
	e := newEnv(t)
	e.owned()
	minute := time.Now().Add(-2 * time.Minute)
	for range 3 {
		e.Vendor.Order("", time.Now())
	}

	e.Delivered(time.Now())
	for range 5 {
		e.Ledger.Limits.CountRefusal(delivery.CodeRateLimited)
	}

	e.Ledger.Limits.CountRefusal(delivery.CodeInvalidPhone)
	must(t, e.Ledger.Limits.Flush(t.Context(), minute))
	e.Decide()
	a := e.get("/overview")
	a.Says("Orders an hour 4 1 ended", "Requests refused 6 in the hour, most often rate limited", "In progress 3", "RATE_LIMITED 5", "INVALID_PHONE 1",
		"Nothing that can be seen here. What answers: Redis, ClickHouse.")
	if part := e.get("/overview/live"); len(part.Text) >= len(a.Text) {
		t.Errorf("the part has %d bytes, the page %d", len(part.Text), len(a.Text))
	}
}

// What does not answer is shown with since when, as long as it does not.
func TestOverview_TellsWhichProgramsDoNotAnswer(t *testing.T) {
	e := newEnv(t)
	e.owned()
	e.pages.seen.MaxAge = 0
	hangs, ready := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, func(context.Context) error { return nil }
	waits := func(context.Context) error { return errors.New("not ready: waiting for Redis") }
	e.pages.Programs = []Program{{"gateway", hangs}, {"worker-1", ready}, {"worker-2", waits}}
	e.get("/overview").Says("What answers: Redis, ClickHouse.").Hides("gateway") // nobody has been asked yet
	e.pages.probe(t.Context())
	a := e.get("/overview").Says("gateway unavailable", "It does not answer on its private listener.", "worker-2 not ready", "waiting for Redis").Hides("worker-1")
	since := func() time.Time { return e.pages.probed.Load().([]readiness)[0].Since }
	noticed := since()
	e.pages.probe(t.Context())
	if !since().Equal(noticed) || noticed.IsZero() || !strings.Contains(a.Text, noticed.In(delivery.Istanbul).Format("2006-01-02T15:04:05")) {
		t.Errorf("unavailable since %s, then %s", noticed, since())
	}

	e.pages.Programs[0].Ask, e.pages.Programs[2].Ask = ready, ready
	e.pages.probe(t.Context())
	e.get("/overview").Says("What answers: Redis, ClickHouse, gateway, worker-1, worker-2.")
	e.pages.Programs[0].Ask = hangs
	e.pages.probe(t.Context())
	if !since().After(noticed) {
		t.Errorf("unavailable again since %s", since())
	}
}

func TestOverview_TellsWhatCouriersReportedInVain(t *testing.T) {
	e := newEnv(t)
	late := e.Vendor.Order("", time.Now())
	e.Change(late.ID, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.TimedOut})
	e.Reach(late, delivery.Delivered, time.Now())
	for range 2 {
		e.Fail(e.Vendor.Order("", time.Now()), delivery.CustomerRefused, time.Now())
	}

	e.Decide()
	e.get("/overview").Says("1 late delivery late", "the amount may have been collected", "2 refused updates refused").Links("/refused-updates").Hides("What answers")
}

// Refusals are of every kind of request, so they are no share of the orders.
func TestOverview_NothingRefusedIsNotNothingAsked(t *testing.T) {
	e := newEnv(t)
	for range 6 {
		e.Vendor.Order("", time.Now())
	}
	must(t, e.Ledger.Limits.Flush(t.Context(), time.Now().Add(-2*time.Minute)))
	e.get("/overview").Says("Orders an hour 6", "Requests refused 0 in the hour In progress").Hides("no request", "%")
}

func TestOverview_NamesWhatNeedsAttention(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now())
	e.Move(o, delivery.Assigned, time.Now())
	e.sends(func(*partitions.Scheduled) partitions.AttemptRecord {
		return partitions.AttemptRecord{State: partitions.StateRetrying, HTTPStatus: 410, Error: "status: 410", NextAt: time.Now().Add(time.Hour)}
	})
	e.Step(o.ID.Partition(), func(step *partitions.Step) {
		step.Summary(map[partitions.EndpointState]partitions.QueueStats{partitions.EndpointGone: {Endpoints: 1, Events: 1}})
	})
	e.keepOwners()
	suspended := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Yavaş <b>Kurye", DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1,
		Suspended: true, Coverage: e.Fleet.Coverage}
	must(t, e.Ledger.Fleets.Create(t.Context(), suspended, [32]byte{9}))
	a := e.get("/overview")
	a.Says("Webhooks of Test gone", "1 event waits, next attempt in 59 min", "Yavaş <b>Kurye suspended", "Unreachable 1 of 1 endpoint", "Webhooks waiting 1")
	a.Links("/webhooks/"+e.Vendor.Account.String(), "/fleets/"+suspended.ID.String(), "/refused-updates", "/dead-letters")
	a.Hides("What answers")
}

// Without an owner nobody knows what waits, which is not nothing.
func TestOverview_WithoutOwnersSaysSo(t *testing.T) {
	e := newEnv(t)
	e.pages.seen.MaxAge = 0
	e.owned()
	e.get("/overview").Says("Webhooks waiting 0 nothing waits Breakers open 0").Hides("no owner")
	e.EachKey("P", "redis.call('DEL', k)")
	e.get("/overview").Says("Partitions no owner", "Webhooks waiting – unknown Breakers open – unknown").Hides("Cannot be read", "nothing waits")
}

func TestOverview_WithoutClickHouseSaysSo(t *testing.T) {
	e := newEnv(t)
	e.owned()
	e.Vendor.Order("", time.Now())
	must(t, e.Ledger.Limits.Flush(t.Context(), time.Now().Add(-time.Minute)))
	e.serve(e.unavailable())
	e.get("/overview").Says("Orders an hour 1", "In progress 0 a list needs ClickHouse", "ClickHouse unavailable", "so history is unavailable").Hides("Cannot be read")
}

// A ClickHouse that takes the question and never answers is asked once for all,
// and holds up nobody after the first who asked.
func TestOverview_HangingClickHouseHoldsUpNobody(t *testing.T) {
	e := newEnv(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	hanging, err := archive.Open(archive.Settings{URL: "http://" + silent.Addr().String(), Database: e.Database})
	must(t, err)
	t.Cleanup(func() { _ = hanging.Close() })
	e.serve(hanging)
	ask := func() { e.get("/overview/live").Says("ClickHouse unavailable", "Orders an hour 0") }
	pinged := &e.pages.pinged
	pinged.Timeout = 10 * time.Millisecond
	var all sync.WaitGroup
	for range 15 {
		all.Go(ask)
	}

	all.Wait()
	var asked atomic.Int64
	pinged.Read = func(context.Context) (bool, error) { asked.Add(1); <-t.Context().Done(); return false, nil }
	pinged.MaxAge, e.pages.seen.MaxAge = 0, 0 // what is known is too old at once
	pinged.MaxStale = time.Hour               // and is shown while it is read again
	ask()
	e.Await("ClickHouse is asked again", func() bool { return asked.Load() == 1 })
	ask()
	ask()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times again", n)
	}
}

func TestOverview_WithoutRedisStillAnswers(t *testing.T) {
	e := newEnvToStop(t)
	e.Server.Stop()
	e.get("/overview").Says("Cannot be read right now: accounts, activity", "Orders an hour –").Hides("ClickHouse unavailable", "What answers")
}
