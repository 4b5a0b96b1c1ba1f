package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestCommitAll_ComparesVersions(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	at := time.Now().Truncate(time.Millisecond)
	commit := Commit{Order: o, Changes: []delivery.Change{{Status: delivery.Assigned, At: at, Courier: delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5551112233"}}}}
	for i, want := range []error{nil, ErrConflict} { // the second is a repeated call
		result := get(s.CommitAll(t.Context(), []Commit{commit}))(t)
		check(t, errors.Is(result[0], want), "call %d: %v, want %v", i, result[0], want)
	}
	stored := get(s.Order(t.Context(), o.ID))(t)
	check(t, stored.Status == delivery.Assigned && delivery.Sequence(stored.Version) == 2 && stored.Courier.Name == "Mehmet Yılmaz" && len(stored.Changes) == 1,
		"stored %+v", stored)
	swap := delivery.Courier{Name: "Ali Veli", Phone: "5550000000", VehicleType: "Bicycle"}
	result := get(s.CommitAll(t.Context(), []Commit{{Order: stored, Swap: &swap}, {Order: &delivery.Order{ID: delivery.MakeOrderID(1, 2, [12]byte{3})}}}))(t)
	must(t, result[0])
	wantCode(t, result[1], delivery.CodeOrderNotFound)
	swapped := get(s.Order(t.Context(), o.ID))(t)
	check(t, swapped.Version == stored.Version && swapped.Courier == swap && swapped.Changes[0].Courier.Name == "Mehmet Yılmaz", "swapped %+v", swapped)
}

func TestCommitAll_KeepsListsAndTimers(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	r := s.rooms[o.ID.Partition()]
	entries := collect(t, s.Ledger, RoleStatus, "c", 1)
	for range 2 { // a repeated call changes nothing
		must(t, s.IndexJobs(t.Context(), o.ID.Partition(), entries))
	}
	listed := func(status delivery.Status) int {
		orders, next := get2(s.Jobs(t.Context(), s.fleet.ID, status, "", 10))(t)
		check(t, next == "", "a cursor %q at the end", next)
		return len(orders)
	}
	check(t, listed(delivery.Searching) == 1, "the new order is not on its fleet's list")
	due := get(s.DueOrders(t.Context(), o.ID.Partition(), o.CreatedAt.Add(15*time.Minute), 10))(t)
	check(t, len(due) == 1 && due[0] == o.ID, "due after 15 minutes: %v", due)
	s.advance(t, o.ID, delivery.Assigned)
	check(t, listed(delivery.Searching) == 0 && listed(delivery.Assigned) == 1, "the assigned order is not on the right list")
	// Indexing that comes late does not bring it back.
	must(t, s.IndexJobs(t.Context(), o.ID.Partition(), entries))
	check(t, listed(delivery.Searching) == 0, "a late index put the order back")
	s.advance(t, o.ID, delivery.Delivered)
	equal(t, s.rdb.ZCard(t.Context(), r.key(kindTimers)).Val(), 0, "timers of ended orders")
	check(t, listed(delivery.Assigned) == 0, "the delivered order is still listed")
}

func TestJobs_PagesOverEverything(t *testing.T) {
	s := newEnv(t)
	// All in one millisecond, so that pages are cut between equal scores.
	at, want := time.Now(), 25
	for i := range want {
		c := s.creation(fmt.Sprint("X-", i), "")
		c.Now = at
		get2(s.CreateOrder(t.Context(), c))(t)
	}
	entries := collect(t, s.Ledger, RoleStatus, "c", want)
	must(t, s.IndexJobs(t.Context(), entries[0].Partition, entries))
	for _, limit := range []int{1, 4, 5, 25, 100} {
		seen := make(map[delivery.OrderID]bool)
		for cursor := ""; ; {
			orders, next := get2(s.Jobs(t.Context(), s.fleet.ID, delivery.Searching, cursor, limit))(t)
			for _, o := range orders {
				require(t, !seen[o.ID], "limit %d: %s is listed twice", limit, o.ID)
				seen[o.ID] = true
			}
			if cursor = next; next == "" {
				break
			}
		}
		check(t, len(seen) == want, "limit %d: %d orders listed, want %d", limit, len(seen), want)
	}
	wantCode(t, errOf(s.Jobs(t.Context(), s.fleet.ID, delivery.Searching, "nonsense", 10)), delivery.CodeValidationFailed)
}

func TestReport_ChecksTheOwner(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	u := delivery.Update{Order: o.ID, Fleet: delivery.NewFleetID(), Kind: delivery.KindStatus, Status: delivery.Assigned, At: time.Now()}
	wantCode(t, errOf(s.Report(t.Context(), u, time.Now())), delivery.CodeOrderNotFound)
	u.Fleet = s.fleet.ID
	before := get(s.Report(t.Context(), u, time.Now()))(t)
	check(t, before.Status == delivery.Searching && before.Reported == 0, "before %+v", before)
	s.advance(t, o.ID, delivery.Failed)
	u.Kind = delivery.KindAccept
	_, err := s.Report(t.Context(), u, time.Now())
	refusal := wantCode(t, err, delivery.CodeJobNotAvailable)
	check(t, refusal.Status == delivery.Failed, "told %s", refusal.Status)
	equal(t, s.rdb.XLen(t.Context(), s.rooms[o.ID.Partition()].key(kindUpdates)).Val(), 1, "updates in the stream")
}

func TestReportLocations_KeepsTheNewest(t *testing.T) {
	s := newEnv(t)
	o, ended := s.create(t, "X-1"), s.create(t, "X-2")
	s.advance(t, ended.ID, delivery.Delivered)
	at := time.Now().Truncate(time.Millisecond)
	here := delivery.Location{Point: taksim, At: at}
	older := delivery.Location{Point: delivery.Point{Latitude: 1, Longitude: 2}, At: at.Add(-time.Second)}
	ignored := get(s.ReportLocations(t.Context(), s.fleet.ID, []Position{{o.ID, here}, {o.ID, older}, {ended.ID, here}, {delivery.MakeOrderID(3, 4, [12]byte{}), here}, {delivery.MakeOrderID(999, 4, [12]byte{}), here}}, at))(t)
	check(t, ignored == 4, "%d ignored, want 4", ignored)
	stored := get(s.Order(t.Context(), o.ID))(t)
	check(t, stored.Location.Point == taksim && stored.Location.At.Equal(at) && stored.LastCourierUpdate.Equal(at),
		"location %+v, last update %s", stored.Location, stored.LastCourierUpdate)
	equal(t, get(s.ReportLocations(t.Context(), delivery.NewFleetID(), []Position{{o.ID, here}}, at))(t), 1, "another fleet: ignored")
}
