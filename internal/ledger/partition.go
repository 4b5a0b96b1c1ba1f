package ledger

import (
	"fmt"
	"hash/fnv"

	"vendorapi/internal/delivery"
)

// clusterSlots is the number of hash slots of Redis Cluster.
const clusterSlots = 16384

// partitionTags names every partition's hash tag: the environment's letter,
// the number in hex, and, where needed, a few letters that move the tag's slot
// into the middle half of the partition's even share of the cluster's slots.
// Masters that own even ranges of slots therefore own even numbers of
// partitions. The names depend on the count only, so they are the same in every
// process for ever.
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

// partitionOf spreads accounts over partitions. Changing it would lose every
// account: it is part of the stored layout.
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
