package ledger

import (
	"testing"

	"vendorapi/internal/delivery"
)

// A full Redis takes no order, in whole or in part, and goes on answering what
// vendors read; what was refused goes through once there is memory.
func TestMemory_FullRefusesWritesAndAnswersReads(t *testing.T) {
	// A server of its own: memory is scarce for everybody in it.
	_, own := ownServer(t)
	s := newEnv(t, own)
	known := s.create(t, "A-1")
	configure := func(most string) {
		t.Helper()
		must(t, s.rdb.ConfigSet(t.Context(), "maxmemory", most).Err())
	}
	configure("1")
	keys := s.rdb.DBSize(t.Context()).Val()
	wantError(t, errOf(s.CreateOrder(t.Context(), s.creation("A-2", "A-2"))), delivery.ErrUnavailable)
	now := s.rdb.DBSize(t.Context()).Val()
	check(t, now == keys, "%d keys before, %d after a refused order", keys, now)
	if o, _, err := s.PollOrder(t.Context(), s.account, known.ID); err != nil || o.ID != known.ID {
		t.Errorf("reading an order: %v", err)
	}
	get(s.Consume(t.Context(), s.account, EndpointStores))(t)
	configure("0")
	if c, _, err := s.CreateOrder(t.Context(), s.creation("A-2", "A-2")); err != nil || c.Replayed {
		t.Errorf("the refused order, sent again: %+v, %v", c, err)
	}
}
