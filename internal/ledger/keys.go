package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"vendorapi/internal/delivery"
)

// The layout. Every key is {tag} + one letter + a binary suffix; all keys of an
// account carry its partition's tag, so one script may touch any of them.
const (
	kindAccount       = 'a' // <account>, hash: name, credentials' hashes, limits
	kindAccounts      = 'A' // set: the partition's accounts
	kindWindows       = 'r' // <endpoint><account>, string: windows and their limits (lua/window.lua); with l behind it their log
	kindMinutes       = 'h' // <account>, hash: refused and all requests per minute
	kindOrder         = 'o' // <digest>, string: order record (record.go)
	kindIdempotency   = 'i' // <digest>, string: fingerprint, order digest
	kindStore         = 's' // <digest>, string: store record
	kindAccountStores = 'S' // <account>, set: digests of the account's stores
	kindFleetStores   = 'F' // <state><fleet>, zset: digests of a fleet's stores in a state, 0: in any; all have the score 0
	kindPendingStores = 'b' // <account>, hash: fleet to the number of the account's stores that wait for its answer
	kindEvents        = 'e' // stream: references to order versions, notices
	kindAccountEvents = 'E' // <account>, stream: what kindEvents has of the account, of the last day, with its ids (lua/names.lua)
	kindUpdates       = 'u' // stream: couriers' updates
	kindNotice        = 'n' // <event id>, string: a notice's body, kept for noticeLifetime
	kindJobs          = 'j' // <status><fleet>, zset: a fleet's jobs by the time of their status
	kindTimers        = 't' // zset: orders by the time of their next timer, ms
	kindClosings      = 'T' // zset: stores by the end of their closing day, ms
	kindRetired       = 'x' // string: index of retired orders' external ids; with <number> behind it, hash: buckets of them, and with f behind that their filter (lua/order.lua)
	kindEnded         = 'R' // <hour>, list: orders that ended in that hour
	kindEndedHours    = 'H' // zset: the hours that have such a list
	kindShrunk        = 'D' // string: hour of the list, and place in it, up to which ended orders are shrunk
	kindEndpoint      = 'w' // <account>, hash: webhook endpoint
	kindRetries       = 'd' // <account>, zset: schedule of events that wait, ms
	kindAttempts      = 'c' // <account>, hash: attempts made, for events that failed or are replayed; with r behind it a set of the latter
	kindAttemptLog    = 'g' // <account>, list: attempt log, newest first
	kindNotes         = 'N' // stream: endpoints that have changed, for the owner
	kindSummary       = 'P' // string: what waits for webhooks, by the owner; gone summaryLifetime after it was last written
	kindReplaying     = 'p' // <account>, string: there while a replay of the account runs
	kindOutcomes      = 'v' // stream: final outcomes of webhook events
	kindTries         = 'V' // stream: failed attempts that go on, until exported; missing where nobody exports
	kindAudit         = 'U' // stream: who did what (audit.go)
	kindOwner         = 'O' // string: who owns the partition, and how far it has got (owner.go)
	kindWorkers       = 'Y' // hash: workers' beats, in a cluster in some partitions (workers.go)
	kindRefused       = 'f' // stream: updates that were refused, capped
	kindDeadLetters   = 'z' // stream: dead letters; y, string: an order being copied, gone when the script ends
	kindSentinel      = '0' // never there; every call in a cluster names it (sentinel)

	kindListed    = 'W' // <list>, zset: accounts of a list, by its score (listings.go)
	kindConfirmed = 'B' // string: written behind what replicas must confirm (replicas.go)

	// Keys of no account have a partition of their own, tag {<env>g}: the fleets in
	// parts (fleets.go), when they were last refused for their limit,
	// meta (partitions, format, fleets' version), the libraries' last use,
	// the accounts' names (listings.go), and the kinds below. What only reporting may
	// write there begins with a name before the tag: books: (books.go), sessions: (sessions.go).
	kindMeta     = 'm' // hash: a copy of partitions and format, in a cluster, with tags of its own (meta.go)
	kindActivity = 'M' // <minute>, hash: what all processes did in that minute (activity.go)
)

type partition struct {
	number int
	prefix string
}

func (r partition) key(kind byte) string                  { return r.prefix + string(rune(kind)) }
func (r partition) keyOf(kind byte, suffix []byte) string { return r.key(kind) + string(suffix) }
func (r partition) account(id delivery.AccountID) string  { return r.keyOf(kindAccount, id[:]) }
func (r partition) order(digest delivery.Digest) string   { return r.keyOf(kindOrder, digest[:]) }
func (r partition) store(digest delivery.Digest) string   { return r.keyOf(kindStore, digest[:]) }

func (r partition) windows(e Endpoint, id delivery.AccountID) string {
	suffix := windowsSuffix(e, id)
	return r.keyOf(kindWindows, suffix[:])
}

func windowsSuffix(e Endpoint, id delivery.AccountID) (suffix [17]byte) {
	suffix[0] = endpointLetters[e]
	copy(suffix[1:], id[:])
	return suffix
}

// replayed names the events of an endpoint's schedule that a replay has added.
func (r partition) replayed(account delivery.AccountID) string {
	return r.keyOf(kindAttempts, account[:]) + "r"
}

func (r partition) jobs(status delivery.Status, fleet delivery.FleetID) string {
	return r.keyOf(kindJobs, append([]byte{byte(status)}, fleet[:]...))
}

// fleetStores lists a fleet's stores in a state; with state 0 in any.
func (r partition) fleetStores(fleet delivery.FleetID, state delivery.StoreState) string {
	return r.keyOf(kindFleetStores, append([]byte{byte(state)}, fleet[:]...))
}

// dayOf is how scripts take the day of an order's id.
func dayOf(id delivery.OrderID) []byte { return binary.BigEndian.AppendUint16(nil, id.Day()) }

// orderMember is how indexes name an order: digest and day.
func orderMember(id delivery.OrderID) string {
	digest := id.Digest()
	return string(binary.BigEndian.AppendUint16(digest[:], id.Day()))
}

func (r partition) orderOfMember(member string) delivery.OrderID {
	var digest delivery.Digest
	if len(member) < len(digest)+2 {
		return delivery.OrderID{}
	}
	copy(digest[:], member)
	return delivery.MakeOrderID(r.number, uint16(member[12])<<8|uint16(member[13]), digest)
}

func (r partition) ordersOf(members []string) []delivery.OrderID {
	ids := make([]delivery.OrderID, len(members))
	for i, member := range members {
		ids[i] = r.orderOfMember(member)
	}
	return ids
}

const clusterSlots = 16384

// partitionTags names the hash tags: environment, number in hex, and letters that move
// the tag's slot into the middle half of the partition's share, so that masters with even
// ranges of slots have even numbers of partitions.
func partitionTags(env byte, partitions int) []string {
	tags := make([]string, partitions)
	share := clusterSlots / partitions
	for i := range tags {
		low, high := i*share+share/4, i*share+share*3/4
		base := fmt.Sprintf("%c%02x", env, i)
		tags[i] = base
		for n := 0; ; n++ {
			if slot := int(hashSlot(tags[i])); slot >= low && slot <= high {
				break
			}
			tags[i] = base + letters(n)
		}
	}

	return tags
}

// letters spells n in a, b, … z, aa, ab, …
func letters(n int) string {
	s := ""
	for n++; n > 0; n = (n - 1) / 26 {
		s = string(rune('a'+(n-1)%26)) + s
	}
	return s
}

// partitionNumber spreads accounts over partitions; it is stored, never change it.
func partitionNumber(account delivery.AccountID, partitions int) int {
	h := fnv.New64a()
	h.Write(account[:])
	return int(h.Sum64() % uint64(partitions))
}

// hashSlot is the cluster's slot of a tag: CRC-16/XMODEM modulo the slots.
func hashSlot(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}

	return crc % clusterSlots
}

// sessionsPrefix begins the keys of sessions, and those of their limits behind redis_rate's own prefix.
// Only reporting's user of Redis has a right to such keys: a session that the gateway or the worker
// could write would speak for any person.
const sessionsPrefix = "sessions:"

const booksPrefix = "books:"

// revokedKey is a sorted set: from which second on the tokens of an account or a fleet are good.
func (l *core) revokedKey() string { return l.global.prefix + "revoked" }
