package main

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

var (
	fleetA = &delivery.Fleet{ID: delivery.FleetID{0xa}, Name: "A", SubRegion: "North", Couriers: -1}
	fleetB = &delivery.Fleet{ID: delivery.FleetID{0xb}, Name: "B", SubRegion: "South", Couriers: -1}
)

func storedStore(state delivery.StoreState, fleet *delivery.Fleet) *delivery.Store {
	s := &delivery.Store{
		Account: delivery.AccountID{1}, ExternalID: "s", State: state, TaxNumber: "1234567890", Name: "Old", Phone: "2161234567",
		Address: "Old street 1", Point: kadikoy, SubRegion: "North", Revision: 7, UpdatedAt: time.Unix(1, 0),
	}
	if fleet != nil {
		s.Fleet, s.FleetName = fleet.ID, fleet.Name
	}
	return s
}

// TestUpsertStore has a row for every sentence of the decisions ("States") about a PUT.
//
//rule:store/request-fields/fleetId store-states/new-or-existing-without-fleet-to-awaitingfleet store-states/awaitingfleet-to-awaitingfleetapproval
//rule:states/stores-awaitingfleet-awaitingfleetapproval states/a-first-put-may-carry states/in-awaitingfleetapproval-a-put-without
//rule:states/a-put-without-fleetid-on states/subregion-is-that-of-the
func TestUpsertStore(t *testing.T) {
	const (
		none     = delivery.StoreState(0)
		awaiting = delivery.AwaitingFleet
		pending  = delivery.AwaitingFleetApproval
		active   = delivery.Active
		closed   = delivery.Deactivated
	)

	both, onlyA, onlyB := []*delivery.Fleet{fleetA, fleetB}, []*delivery.Fleet{fleetA}, []*delivery.Fleet{fleetB}
	for _, c := range []struct {
		name    string
		before  delivery.StoreState
		at      *delivery.Fleet // attached before
		chosen  *delivery.Fleet // named by the request
		serving []*delivery.Fleet
		after   delivery.StoreState // none: FLEET_NOT_AVAILABLE
		with    *delivery.Fleet
	}{
		{"first PUT", none, nil, nil, both, awaiting, nil},
		{"first PUT where nobody serves", none, nil, nil, nil, awaiting, nil},
		{"first PUT may carry fleetId", none, nil, fleetA, both, pending, fleetA},
		{"first PUT with a fleet that does not serve", none, nil, fleetA, onlyB, none, nil},
		{"AwaitingFleet without fleetId", awaiting, nil, nil, both, awaiting, nil},
		{"AwaitingFleet with fleetId", awaiting, nil, fleetB, both, pending, fleetB},
		{"AwaitingFleet with a fleet that does not serve", awaiting, nil, fleetB, onlyA, none, nil},
		{"AwaitingFleetApproval without fleetId keeps the state", pending, fleetA, nil, both, pending, fleetA},
		{"AwaitingFleetApproval with the same fleetId", pending, fleetA, fleetA, both, pending, fleetA},
		{"AwaitingFleetApproval with another fleetId", pending, fleetA, fleetB, both, pending, fleetB},
		{"AwaitingFleetApproval outside its fleet's coverage", pending, fleetA, nil, onlyB, awaiting, nil},
		{"Active without fleetId keeps Active", active, fleetA, nil, both, active, fleetA},
		{"Active with the same fleetId is a no-op", active, fleetA, fleetA, both, active, fleetA},
		{"Active with another fleetId", active, fleetA, fleetB, both, pending, fleetB},
		{"Active with another fleetId outside the first one's coverage", active, fleetA, fleetB, onlyB, pending, fleetB},
		{"Active with another fleet that does not serve", active, fleetA, fleetB, onlyA, none, nil},
		{"Active outside its fleet's coverage", active, fleetA, nil, onlyB, awaiting, nil},
		{"Active where nobody serves", active, fleetA, nil, nil, awaiting, nil},
		{"Active outside coverage, same fleetId insisted on", active, fleetA, fleetA, onlyB, none, nil},
		{"Deactivated registers again", closed, nil, nil, both, awaiting, nil},
		{"Deactivated registers again with fleetId", closed, nil, fleetA, both, pending, fleetA},
		{"Deactivated that kept its fleet registers again", closed, fleetA, nil, both, awaiting, nil},
		{"Deactivated with its former fleet needs approval again", closed, fleetA, fleetA, both, pending, fleetA},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before *delivery.Store
			if c.before != none {
				before = storedStore(c.before, c.at)
			}

			asked := delivery.Store{TaxNumber: "99999999999", Name: "New", Phone: "2169999999", Address: "New street 2", Point: besiktas}
			if before != nil && c.before != closed {
				asked.Fleet = before.Fleet // as StoreRequest.Check merges
			}

			if c.chosen != nil {
				asked.Fleet = c.chosen.ID
			}

			now := time.Unix(1000, 0)
			after, err := upsertStore(before, asked, c.chosen != nil, c.serving, now)
			if c.after == none {
				if delivery.CodeOf(err) != delivery.CodeFleetNotAvailable {
					t.Errorf("got %+v, %v", after, err)
				}
				return
			}

			if err != nil || after.State != c.after {
				t.Fatalf("got %s, %v; want %s", after.State, err, c.after)
			}

			if c.with == nil && !after.Fleet.IsZero() || c.with != nil && (after.Fleet != c.with.ID || after.FleetName != c.with.Name) {
				t.Errorf("fleet = %s %q", after.Fleet, after.FleetName)
			}
			if after.Name != "New" || after.TaxNumber != "99999999999" || after.Phone != "2169999999" ||
				after.Address != "New street 2" || after.Point != besiktas || !after.UpdatedAt.Equal(now) {
				t.Errorf("the fields were not taken over: %+v", after)
			}

			wantRegion := ""
			if len(c.serving) > 0 {
				wantRegion = c.serving[0].SubRegion
			}

			if after.SubRegion != wantRegion {
				t.Errorf("subRegion = %q", after.SubRegion)
			}
			if before != nil && after.Revision != before.Revision {
				t.Errorf("revision = %d", after.Revision)
			}
		})
	}
}

// A closing date belongs to an Active store: whatever takes the store out of that
// state ends the migration.
//
//rule:states/stores-awaitingfleet-awaitingfleetapproval
func TestUpsertStore_KeepsTheClosingDateWhileActive(t *testing.T) {
	closing := time.Date(2026, 12, 1, 0, 0, 0, 0, delivery.Istanbul)
	both, onlyB := []*delivery.Fleet{fleetA, fleetB}, []*delivery.Fleet{fleetB}
	for _, c := range []struct {
		name    string
		before  delivery.StoreState
		chosen  *delivery.Fleet
		serving []*delivery.Fleet
		want    time.Time
	}{
		{"other fields", delivery.Active, nil, both, closing},
		{"the same fleet", delivery.Active, fleetA, both, closing},
		{"another fleet", delivery.Active, fleetB, both, time.Time{}},
		{"an address outside coverage", delivery.Active, nil, onlyB, time.Time{}},
		{"registered again", delivery.Deactivated, nil, both, time.Time{}},
	} {
		before := storedStore(c.before, fleetA)
		before.ClosingDate = closing
		asked := delivery.Store{Point: kadikoy, Fleet: fleetA.ID}
		if c.chosen != nil {
			asked.Fleet = c.chosen.ID
		}

		after, err := upsertStore(before, asked, c.chosen != nil, c.serving, time.Now())
		if err != nil || !after.ClosingDate.Equal(c.want) {
			t.Errorf("%s: %v, %v", c.name, after.ClosingDate, err)
		}
	}
}

func TestSameStore(t *testing.T) {
	before := storedStore(delivery.Active, fleetA)
	after := *before
	after.UpdatedAt = time.Now()
	if !sameStore(before, after) {
		t.Error("only the time differs")
	}

	after.Phone = "5551112233"
	if sameStore(before, after) || sameStore(nil, after) {
		t.Error("a change was taken for none")
	}
}
