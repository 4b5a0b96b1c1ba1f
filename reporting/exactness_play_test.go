package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// play is what the test knows by itself of the orders that it made: nothing here
// comes from the ledger's records or from ClickHouse.
type play struct {
	bed    *testenv.Env
	stores []*delivery.Store
	fleets map[delivery.FleetID]*delivery.Fleet

	mu     sync.Mutex
	orders []*played
}

// played is an order as its maker knows it. Times are in milliseconds.
type played struct {
	id         delivery.OrderID
	external   string
	store      *delivery.Store
	created    time.Time
	pickedUp   time.Time
	delivered  time.Time
	ended      time.Time
	lateReport time.Time
	status     delivery.Status
	failure    delivery.FailureReason
	payment    delivery.PaymentType
	amount     delivery.Money
	collection delivery.Money
}

// firstDay begins the play's period, which holds a leap day and ends of months.
var firstDay = time.Date(2024, 2, 10, 0, 0, 0, 0, delivery.Istanbul)

const playedDays = 40

// newPlay makes vendors with stores of two fleets; one store's name is what
// spreadsheets fear.
func newPlay(t *testing.T) *play {
	p := &play{bed: testenv.New(t), fleets: make(map[delivery.FleetID]*delivery.Fleet)}
	first := p.bed.Fleet
	second := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Yıldız Kurye; \"Ağrı\"", SubRegion: "Kadıköy",
		DeliveryMinutes: 20, PickupMinutes: 5, Couriers: -1, Coverage: first.Coverage}
	if err := p.bed.Ledger.CreateFleet(t.Context(), second, [32]byte{9}); err != nil {
		t.Fatal(err)
	}
	p.fleets[first.ID], p.fleets[second.ID] = first, second
	for i := range 5 {
		v := p.bed.Vendor()
		for j, name := range []string{"Çiğköfteci Şükrü Ünal", "=1+1 Döner"} {
			s := v.NewStore(fmt.Sprintf("store-%d", j), delivery.Active)
			s.Name, s.TaxNumber = fmt.Sprint(name, " ", i), fmt.Sprintf("%010d", 10*i+j)
			if (i+j)%2 == 1 {
				s.Fleet, s.FleetName = second.ID, second.Name
			}
			if err := p.bed.Ledger.WriteStore(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			p.stores = append(p.stores, s)
		}
	}
	return p
}

// make plays n orders with several hands at once.
func (p *play) make(t *testing.T, n int, seed uint64) {
	const hands = 8
	var all sync.WaitGroup
	for hand := range hands {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(hand)))
			for i := hand; i < n && !t.Failed(); i += hands {
				if err := p.one(t, r, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// one creates an order and takes it some way in several commits.
func (p *play) one(t *testing.T, r *rand.Rand, n int) error {
	o := p.draw(r, n)
	if err := p.create(t, o); err != nil {
		return err
	}
	changes := o.draws(r)
	for len(changes) > 0 {
		some := changes[:1+r.IntN(len(changes))]
		changes = changes[len(some):]
		stored, err := p.bed.Ledger.Order(t.Context(), o.id)
		if err != nil {
			return err
		}
		results, err := p.bed.Ledger.CommitAll(t.Context(), []ledger.Commit{{Order: stored, Changes: some}})
		if err != nil || results[0] != nil {
			return fmt.Errorf("order %d: %w %v", n, err, results)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orders = append(p.orders, o)
	return nil
}

// draw makes up an order. One in ten is created at the edge of a day.
func (p *play) draw(r *rand.Rand, n int) *played {
	created := firstDay.AddDate(0, 0, r.IntN(playedDays))
	switch r.IntN(20) {
	case 0:
	case 1:
		created = created.AddDate(0, 0, 1).Add(-time.Millisecond)
	default:
		created = created.Add(time.Duration(r.Int64N(int64(24*time.Hour/time.Millisecond))) * time.Millisecond)
	}
	o := &played{external: fmt.Sprintf("ş-%d", n), store: p.stores[r.IntN(len(p.stores))], created: created,
		status: delivery.Searching, payment: delivery.PaymentType(r.IntN(4))}
	if r.IntN(10) > 0 {
		o.amount = delivery.Money{Minor: r.Int64N(1_000_000), Set: true}
	}
	switch r.IntN(4) {
	case 0:
	case 1:
		o.collection = delivery.Money{Minor: r.Int64N(delivery.MaxMoneyMinor + 1), Set: true}
	default:
		o.collection = o.amount
	}
	return o
}

func (p *play) create(t *testing.T, o *played) error {
	draft := &delivery.OrderDraft{
		ExternalStoreID: o.store.ExternalID, ExternalOrderID: o.external, ReadyAt: o.created,
		Recipient:   delivery.Recipient{Name: "Ali Veli", Phone: "5321234567"},
		Dropoff:     delivery.Dropoff{Text: "Bahariye Cd. No 5 D 3", Point: delivery.Point{Latitude: 40.99, Longitude: 29.03}},
		OrderAmount: o.amount, Payment: delivery.Payment{Type: o.payment, CollectionAmount: o.collection},
	}
	var candidates []ledger.Candidate
	for _, f := range p.fleets {
		candidates = append(candidates, ledger.Candidate{Terms: f.Terms(), Covers: true})
	}
	created, _, err := p.bed.Ledger.CreateOrder(t.Context(), &ledger.Creation{Account: o.store.Account,
		IdempotencyKey: o.external, Body: []byte(o.external), Draft: draft, Now: o.created, Candidates: candidates})
	if err != nil {
		return err
	}
	o.id = created.Order.ID
	return nil
}

// draws takes the order a random way: delivered, failed or cancelled at some
// step, or still open. Steps take up to an hour, so that many end on a later day
// than they began.
func (o *played) draws(r *rand.Rand) (changes []delivery.Change) {
	at := o.created
	reach := func(s delivery.Status) *delivery.Change {
		at = at.Add(time.Duration(r.Int64N(int64(time.Hour/time.Millisecond))) * time.Millisecond)
		o.status = s
		changes = append(changes, delivery.Change{Status: s, At: at, Courier: testenv.Courier})
		if s.Terminal() {
			o.ended = at
		}
		return &changes[len(changes)-1]
	}
	steps := r.IntN(6)
	for s := delivery.Assigned; s <= delivery.Delivered && int(s) <= int(delivery.Searching)+steps; s++ {
		reach(s)
		switch s {
		case delivery.PickedUp:
			o.pickedUp = at
		case delivery.Delivered:
			o.delivered = at
			return changes
		}
	}
	switch {
	case r.IntN(8) == 0: // stays open
	case o.status.Cancellable() && r.IntN(2) == 0:
		reach(delivery.Cancelled).Cancel = delivery.CustomerRequest
	default:
		o.failure = []delivery.FailureReason{delivery.TimedOut, delivery.CourierIncident, delivery.OtherFailure}[r.IntN(3)]
		reach(delivery.Failed).Failure = o.failure
	}
	return changes
}

// reportLate has couriers report some of the orders that had been given up as
// delivered after all; the reports are refused.
func (p *play) reportLate(t *testing.T) {
	late := 0
	for _, o := range p.orders {
		if o.failure == delivery.TimedOut && late < 20 {
			late++
			o.lateReport = o.ended.Add(7 * time.Minute)
			u := delivery.Update{Order: o.id, Fleet: o.store.Fleet, Kind: delivery.KindStatus, Status: delivery.Delivered, At: o.lateReport}
			if _, err := p.bed.Ledger.Report(t.Context(), u, o.lateReport); err != nil {
				t.Fatal(err)
			}
		}
	}
}
