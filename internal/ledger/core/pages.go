package core

import "fmt"

// Listings of accounts and receivers read a page, whatever the number of accounts is. Two kinds
// of index serve them: the names of all accounts, one sorted set beside the partitions
// (namesKey), and in each partition the lists below, whose pages are merged.
//
// The lists need no repair. The script that changes what a list is about changes the list, too:
// write_endpoint.lua and the owner's steps (advance.lua) that of the receivers, count_minutes.lua
// that of the excess, write_account.lua that of the suspended, and write_store.lua that of the
// accounts with stores, which nothing leaves because no store is deleted. A silent account stays
// among those in excess after its end, which is its score, so it is not read or counted any more.
const (
	ListReceivers = 'r' // the receivers with a URL, by receiverScore
	ListExcess    = 'x' // accounts in sustained excess, by when it ends, ms
	ListSuspended = 's' // suspended accounts, by when they were suspended, ms

	ListWithStores = 't' // accounts that have a store, all with the score 0 (accounts/write_store.lua)
)

// SetsHolding returns how many of the first sets, at least one, have that many entries
// together; all when there are fewer.
func SetsHolding(sizes []int64, wanted int64) int {
	for i, size := range sizes {
		wanted -= size
		if wanted <= 0 {
			return i + 1
		}
	}
	return len(sizes)
}

const (
	// PartitionsCounted is how many partitions are asked for the sizes of their lists in one
	// round trip.
	PartitionsCounted = 256
)

// MostListed bounds the lists that are read in one go.
const MostListed = 1000

// CheckListed refuses a limit that is not within 1 to mostListed.
func CheckListed(limit int) error {
	if limit < 1 || limit > MostListed {
		return fmt.Errorf("a list of %d: want 1 to %d", limit, MostListed)
	}
	return nil
}
