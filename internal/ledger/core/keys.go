package core

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
	KindAccounts      = 'A' // set: the partition's accounts
	KindWindows       = 'r' // <endpoint><account>, string: windows and their limits (window.lua); with l behind it their log
	KindMinutes       = 'h' // <account>, hash: refused and all requests per minute
	KindOrder         = 'o' // <digest>, string: order record (record.go)
	KindIdempotency   = 'i' // <digest>, string: fingerprint, order digest
	KindStore         = 's' // <digest>, string: store record
	KindAccountStores = 'S' // <account>, set: digests of the account's stores
	kindFleetStores   = 'F' // <state><fleet>, zset: digests of a fleet's stores in a state, 0: in any; all have the score 0
	KindPendingStores = 'b' // <account>, hash: fleet to the number of the account's stores that wait for its answer
	KindEvents        = 'e' // stream: references to order versions, notices
	KindAccountEvents = 'E' // <account>, stream: what kindEvents has of the account, of the last day, with its ids (names.lua)
	KindUpdates       = 'u' // stream: couriers' updates
	KindNotice        = 'n' // <event id>, string: a notice's body, kept for noticeLifetime
	kindJobs          = 'j' // <status><fleet>, zset: a fleet's jobs by the time of their status
	KindTimers        = 't' // zset: orders by the time of their next timer, ms
	KindClosings      = 'T' // zset: stores by the end of their closing day, ms
	KindRetired       = 'x' // string: index of retired orders' external ids; with <number> behind it, hash: buckets of them, and with f behind that their filter (order.lua)
	KindEnded         = 'R' // <hour>, list: orders that ended in that hour
	KindEndedHours    = 'H' // zset: the hours that have such a list
	KindShrunk        = 'D' // string: hour of the list, and place in it, up to which ended orders are shrunk
	KindEndpoint      = 'w' // <account>, hash: webhook endpoint
	KindRetries       = 'd' // <account>, zset: schedule of events that wait, ms
	KindAttempts      = 'c' // <account>, hash: attempts made, for events that failed or are replayed; with r behind it a set of the latter
	KindAttemptLog    = 'g' // <account>, list: attempt log, newest first
	KindNotes         = 'N' // stream: endpoints that have changed, for the owner
	KindSummary       = 'P' // string: what waits for webhooks, by the owner; gone summaryLifetime after it was last written
	KindReplaying     = 'p' // <account>, string: there while a replay of the account runs
	KindOutcomes      = 'v' // stream: final outcomes of webhook events
	KindTries         = 'V' // stream: failed attempts that go on, until exported; missing where nobody exports
	KindAudit         = 'U' // stream: who did what (audit.go)
	KindOwner         = 'O' // string: who owns the partition, and how far it has got (owner.go)
	kindWorkers       = 'Y' // hash: workers' beats, in a cluster in some partitions (workers.go)
	KindRefused       = 'f' // stream: updates that were refused, capped
	KindDeadLetters   = 'z' // stream: dead letters; y, string: an order being copied, gone when the script ends
	KindSentinel      = '0' // never there; every call in a cluster names it (sentinel)

	kindListed    = 'W' // <list>, zset: accounts of a list, by its score (listings.go)
	kindConfirmed = 'B' // string: written behind what replicas must confirm (replicas.go)

	// Keys of no account have a partition of their own, tag {<env>g}: the fleets in
	// parts (fleets.go), when they were last refused for their limit,
	// meta (partitions, format, fleets' version), the libraries' last use,
	// the accounts' names (listings.go), and the kinds below. What only reporting may
	// write there begins with a name before the tag: books: (books.go), sessions: (sessions.go).
	kindMeta     = 'm' // hash: a copy of partitions and format, in a cluster, with tags of its own (meta.go)
	KindActivity = 'M' // <minute>, hash: what all processes did in that minute (activity.go)
)

type Partition struct {
	Number int
	Prefix string
}

func (r Partition) Key(kind byte) string                  { return r.Prefix + string(rune(kind)) }
func (r Partition) KeyOf(kind byte, suffix []byte) string { return r.Key(kind) + string(suffix) }
func (r Partition) Account(id delivery.AccountID) string  { return r.KeyOf(kindAccount, id[:]) }
func (r Partition) Order(digest delivery.Digest) string   { return r.KeyOf(KindOrder, digest[:]) }
func (r Partition) Store(digest delivery.Digest) string   { return r.KeyOf(KindStore, digest[:]) }

// Replayed names the events of an endpoint's schedule that a replay has added.
func (r Partition) Replayed(account delivery.AccountID) string {
	return r.KeyOf(KindAttempts, account[:]) + "r"
}

func (r Partition) Jobs(status delivery.Status, fleet delivery.FleetID) string {
	return r.KeyOf(kindJobs, append([]byte{byte(status)}, fleet[:]...))
}

// FleetStores lists a fleet's stores in a state; with state 0 in any.
func (r Partition) FleetStores(fleet delivery.FleetID, state delivery.StoreState) string {
	return r.KeyOf(kindFleetStores, append([]byte{byte(state)}, fleet[:]...))
}

// DayOf is how scripts take the day of an order's id.
func DayOf(id delivery.OrderID) []byte { return binary.BigEndian.AppendUint16(nil, id.Day()) }

// OrderMember is how indexes name an order: digest and day.
func OrderMember(id delivery.OrderID) string {
	digest := id.Digest()
	return string(binary.BigEndian.AppendUint16(digest[:], id.Day()))
}

func (r Partition) OrderOfMember(member string) delivery.OrderID {
	var digest delivery.Digest
	if len(member) < len(digest)+2 {
		return delivery.OrderID{}
	}
	copy(digest[:], member)
	return delivery.MakeOrderID(r.Number, uint16(member[12])<<8|uint16(member[13]), digest)
}

func (r Partition) OrdersOf(members []string) []delivery.OrderID {
	ids := make([]delivery.OrderID, len(members))
	for i, member := range members {
		ids[i] = r.OrderOfMember(member)
	}
	return ids
}

const ClusterSlots = 16384

// PartitionTags names the hash tags: environment, number in hex, and letters that move
// the tag's slot into the middle half of the partition's share, so that masters with even
// ranges of slots have even numbers of partitions.
func PartitionTags(env byte, partitions int) []string {
	tags := make([]string, partitions)
	share := ClusterSlots / partitions
	for i := range tags {
		low, high := i*share+share/4, i*share+share*3/4
		base := fmt.Sprintf("%c%02x", env, i)
		tags[i] = base
		for n := 0; ; n++ {
			if slot := int(HashSlot(tags[i])); slot >= low && slot <= high {
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

// PartitionNumber spreads accounts over partitions; it is stored, never change it.
func PartitionNumber(account delivery.AccountID, partitions int) int {
	h := fnv.New64a()
	h.Write(account[:])
	return int(h.Sum64() % uint64(partitions))
}

// HashSlot is the cluster's slot of a tag: CRC-16/XMODEM modulo the slots.
func HashSlot(tag string) uint16 {
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

	return crc % ClusterSlots
}

// SessionsPrefix begins the keys of sessions, and those of their limits behind redis_rate's own prefix.
// Only reporting's user of Redis has a right to such keys: a session that the gateway or the worker
// could write would speak for any person.
const SessionsPrefix = "sessions:"

const BooksPrefix = "books:"

// RevokedKey is a sorted set: from which second on the tokens of an account or a fleet are good.
func (l *Client) RevokedKey() string { return l.Global.Prefix + "revoked" }
