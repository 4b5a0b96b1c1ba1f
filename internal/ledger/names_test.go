package ledger

import (
	"testing"

	"vendorapi/internal/delivery"
)

// A count that is missing must not admit one store more than the limit.
func TestWriteStore_ACountOfWaitingStoresIsNeverNegative(t *testing.T) {
	l := openTest(t)
	limits := plenty()
	limits.MaxPendingStores = 1
	account, fleet := newAccount(t, l, limits), delivery.NewFleetID()
	first := testStore(account, "S-1", fleet, delivery.AwaitingFleetApproval)
	must(t, l.Stores.Write(t.Context(), first))
	counts := l.partitionOf(account).keyOf(kindPendingStores, account[:])
	must(t, l.rdb.Del(t.Context(), counts).Err())

	first.State = delivery.Active
	must(t, l.Stores.Write(t.Context(), first))
	equal(t, get(l.rdb.HGetAll(t.Context(), counts).Result())(t), map[string]string{}, "counts")
	must(t, l.Stores.Write(t.Context(), testStore(account, "S-2", fleet, delivery.AwaitingFleetApproval)))
	wantCode(t, l.Stores.Write(t.Context(), testStore(account, "S-3", fleet, delivery.AwaitingFleetApproval)), delivery.CodeTooManyStores)
	equal(t, get(l.rdb.HGet(t.Context(), counts, string(fleet[:])).Result())(t), "1", "stores that wait")
}
