package delivery

import (
	"testing"
	"time"
)

func storeIn(state StoreState) *Store {
	return &Store{ExternalID: "branch-1", State: state, Fleet: NewFleetID(), FleetName: "Hızlı", Revision: 7}
}

//rule:store-states/awaitingfleetapproval-to-active states/stores-awaitingfleet-awaitingfleetapproval
func TestStoreMoves_LegalFrom(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, Istanbul)
	moves := []struct {
		name  string
		move  func(*Store) error
		legal map[StoreState]StoreState
		code  Code
	}{
		{"confirm", func(s *Store) error { return ConfirmStore(s, now) },
			map[StoreState]StoreState{AwaitingFleetApproval: Active}, CodeStoreNotPending},
		{"reject", func(s *Store) error { return RejectStore(s, now) },
			map[StoreState]StoreState{AwaitingFleetApproval: AwaitingFleet}, CodeStoreNotPending},
		{"migrate", func(s *Store) error { return MigrateStore(s, now, now) },
			map[StoreState]StoreState{Active: Active}, CodeStoreNotConfigured},
		{"deactivate", func(s *Store) error { return DeactivateStore(s, now) },
			map[StoreState]StoreState{AwaitingFleet: Deactivated, AwaitingFleetApproval: Deactivated, Active: Deactivated},
			CodeStoreNotConfigured},
	}

	for _, m := range moves {
		for from := AwaitingFleet; from <= Deactivated; from++ {
			s := storeIn(from)
			before := *s
			err := m.move(s)
			to, legal := m.legal[from]
			switch {
			case legal && (err != nil || s.State != to || !s.UpdatedAt.Equal(now)):
				t.Errorf("%s from %s: %v, now %s", m.name, from, err, s.State)
			case !legal && (CodeOf(err) != m.code || *s != before):
				t.Errorf("%s from %s: %v, store %+v", m.name, from, err, *s)
			case s.Revision != 7:
				t.Errorf("%s from %s changed the revision", m.name, from)
			}
		}
	}
}

func TestRejectAndDeactivateStore_LoseTheFleet(t *testing.T) {
	now := time.Now()
	for _, move := range []func(*Store, time.Time) error{RejectStore, DeactivateStore} {
		s := storeIn(AwaitingFleetApproval)
		err := move(s, now)
		check(t, err == nil && s.Fleet.IsZero() && s.FleetName == "", "err %v, store %+v", err, s)
	}
}

//rule:states/stores-awaitingfleet-awaitingfleetapproval
func TestMigrateStore_ClosesAtTheEndOfTheLocalDay(t *testing.T) {
	now := time.Date(2026, 11, 21, 23, 30, 0, 0, Istanbul)
	s := storeIn(Active)
	require(t, !s.ClosingOver(now), "a store that does not migrate is closing")
	// 22:00 UTC is already the next local day.
	if err := MigrateStore(s, time.Date(2026, 11, 22, 22, 0, 0, 0, time.UTC), now); err != nil {
		t.Fatal(err)
	}

	midnight := time.Date(2026, 11, 24, 0, 0, 0, 0, Istanbul)
	for at, want := range map[time.Time]bool{
		now: false, midnight.Add(-time.Millisecond): false, midnight: true, midnight.Add(time.Hour): true,
	} {
		got := s.ClosingOver(at)
		check(t, got == want, "ClosingOver(%s) = %v", at, got)
	}

	if err := DeactivateStore(s, midnight); err != nil || s.ClosingOver(midnight) {
		t.Fatalf("after deactivation: %v, %+v", err, s)
	}
}

func TestMigrateStore_RefusesAPastDay(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 30, 0, 0, Istanbul)
	s := storeIn(Active)
	err := MigrateStore(s, now.Add(-time.Hour), now)
	require(t, CodeOf(err) == CodeValidationFailed && s.ClosingDate.IsZero(), "err %v, store %+v", err, s)
	if err := MigrateStore(s, now, now); err != nil {
		t.Fatalf("today: %v", err)
	}
}
