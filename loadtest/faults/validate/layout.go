package validate

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// This file has what docs/redis.md says of the names of keys and of what stands in them, as far as the checks need it. It
// follows that document and not the ledger's code, so that a defect there is not repeated here. Ids, statuses and the
// names of groups are shared with the packages delivery and ledger.

// partition is one of the parts of a ledger.
type partition struct {
	number int
	tag    string // in braces; the names of all keys of the partition begin with it
}

// clusterSlots is the number of slots of a Redis Cluster.
const clusterSlots = 1 << 14

// partitionsOf returns all partitions of a ledger. Their tags follow from its environment and from how many there are.
func partitionsOf(environment string, count int) []partition {
	share := clusterSlots / count
	partitions := make([]partition, count)
	for i := range partitions {
		first, last := i*share+share/4, i*share+share*3/4
		base := fmt.Sprintf("%c%02x", environment[0], i)

		tag := base
		for n := 1; slotOf(tag) < first || slotOf(tag) > last; n++ {
			tag = base + lettersOf(n)
		}
		partitions[i] = partition{number: i, tag: "{" + tag + "}"}
	}

	return partitions
}

// slotOf returns the slot of a tag without its braces: CRC-16/XMODEM, modulo the number of slots.
func slotOf(tag string) int {
	const polynomial = 0x1021
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			highest := crc & 0x8000
			crc <<= 1
			if highest != 0 {
				crc ^= polynomial
			}
		}
	}

	return int(crc) % clusterSlots
}

// lettersOf returns a for 1, b for 2, z for 26, aa for 27, and so on.
func lettersOf(n int) string {
	letters := ""
	for ; n > 0; n = (n - 1) / 26 {
		letters = string(rune('a'+(n-1)%26)) + letters
	}
	return letters
}

// accounts is a set of the ids of the partition's accounts.
func (p partition) accounts() string { return p.tag + "A" }

// timers is a sorted set of the members of orders that have not ended.
func (p partition) timers() string { return p.tag + "t" }

// jobs is a sorted set of the members of a fleet's orders in a status.
func (p partition) jobs(status delivery.Status, fleet delivery.FleetID) string {
	return p.tag + "j" + string([]byte{byte(status)}) + string(fleet[:])
}

// schedule is a sorted set of the events that wait for an account's webhooks.
func (p partition) schedule(account delivery.AccountID) string {
	return p.tag + "d" + string(account[:])
}

// attempts is a hash with the attempts that were made of scheduled events.
func (p partition) attempts(account delivery.AccountID) string {
	return p.tag + "c" + string(account[:])
}

// replayed is a set of the scheduled events that a replay has added.
func (p partition) replayed(account delivery.AccountID) string { return p.attempts(account) + "r" }

// stream is a stream that every partition may have, with the groups that must settle all of it.
type stream struct {
	letter string
	name   string // for reports
	groups []ledger.Role
}

// streams are those that consumer groups read.
var streams = []stream{
	{letter: "e", name: "events", groups: []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook, ledger.RoleExport}},
	{letter: "u", name: "reports", groups: []ledger.Role{ledger.RoleStatus}},
	{letter: "v", name: "outcomes", groups: []ledger.Role{ledger.RoleExport}},
	{letter: "V", name: "attempts", groups: []ledger.Role{ledger.RoleExport}},
	{letter: "U", name: "audit", groups: []ledger.Role{ledger.RoleExport}},
}

func (p partition) stream(s stream) string { return p.tag + s.letter }

// memberSize is the length of a member, by which indexes and events name an order: its digest, and the day of its
// creation in two bytes.
const memberSize = delivery.OrderDigestSize + 2

// orderOf returns the order that a member names. It is false for text that names none.
func (p partition) orderOf(member string) (delivery.OrderID, bool) {
	if len(member) != memberSize {
		return delivery.OrderID{}, false
	}

	digest := delivery.Digest([]byte(member))
	day := binary.BigEndian.Uint16([]byte(member[len(digest):]))
	return delivery.MakeOrderID(p.number, day, digest), true
}

// The kinds of what stands in a schedule, its first byte. Behind that of an order are its member, the version in eight
// bytes, and the kind of the change; behind that of a notice is the event id.
const (
	eventOfOrder  = 1
	eventOfNotice = 2

	eventOfOrderSize = 1 + memberSize + 8 + 1
)

// waitingEvent names an event of a schedule: a version of an order by its Subject, a notice by its event id. What is
// neither is shown in hex.
func (p partition) waitingEvent(item string) string {
	switch {
	case len(item) == eventOfOrderSize && item[0] == eventOfOrder:
		order, _ := p.orderOf(item[1 : 1+memberSize])
		version := binary.BigEndian.Uint64([]byte(item[1+memberSize:]))
		return Subject(order.String(), delivery.Sequence(version))

	case len(item) > 1 && item[0] == eventOfNotice:
		return item[1:]
	}

	return hex.EncodeToString([]byte(item))
}
