package ledger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// The external ids of retired orders, as lua/order.lua keeps them; the constants are the same there.
const (
	retiredEntrySize  = 11 // bytes of an id in its bucket: nine of the order's digest, two of the day
	retiredDigestSize = 9
	retiredPrime      = 67108859
	bucketsPerHash    = 170
)

// retiredIndex says how many external ids a partition remembers, and in which bucket each of them is.
type retiredIndex struct {
	ids     uint64
	buckets uint32    // at least 1, at most retiredPrime
	span    uint32    // the smallest power of two above buckets
	secrets [3]uint32 // below retiredPrime; drawn once for each partition
}

const retiredIndexSize = 26

// firstRetiredIndex is the index of a partition that remembers no id.
func firstRetiredIndex() retiredIndex { return retiredIndex{buckets: 1, span: 2} }

// newRetiredIndex is firstRetiredIndex, with new secrets, as it is stored. retire_orders takes it where
// there is none.
func newRetiredIndex() []byte {
	index := firstRetiredIndex()
	for i := range index.secrets {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		index.secrets[i] = uint32(binary.BigEndian.Uint64(random[:]) % retiredPrime)
	}
	return index.encode()
}

func (x *retiredIndex) encode() []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(x.ids>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(x.ids))
	b = binary.BigEndian.AppendUint32(b, x.buckets)
	b = binary.BigEndian.AppendUint32(b, x.span)
	for _, secret := range x.secrets {
		b = binary.BigEndian.AppendUint32(b, secret)
	}
	return b
}

// decodeRetiredIndex reads a stored index; an empty text is that of a partition without one.
func decodeRetiredIndex(stored string) (retiredIndex, error) {
	if stored == "" {
		return firstRetiredIndex(), nil
	}
	if len(stored) != retiredIndexSize {
		return retiredIndex{}, fmt.Errorf("the index of retired ids has %d bytes, want %d", len(stored), retiredIndexSize)
	}

	b := []byte(stored)
	index := retiredIndex{
		ids:     uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:])),
		buckets: binary.BigEndian.Uint32(b[6:]),
		span:    binary.BigEndian.Uint32(b[10:]),
	}

	for i := range index.secrets {
		index.secrets[i] = binary.BigEndian.Uint32(b[14+4*i:])
	}

	if index.buckets == 0 || index.span <= index.buckets || index.span/2 > index.buckets {
		return retiredIndex{}, fmt.Errorf("the index of retired ids has %d buckets and a span of %d", index.buckets, index.span)
	}

	return index, nil
}

// bucket returns the number of the bucket in which an order's id is, or would be.
func (x *retiredIndex) bucket(digest delivery.Digest) uint32 {
	hash := uint64(0)
	for i, secret := range x.secrets {
		part := uint64(digest[3*i])<<16 | uint64(digest[3*i+1])<<8 | uint64(digest[3*i+2])
		hash += part * uint64(secret)
	}

	bucket := uint32(hash%retiredPrime) % x.span
	if bucket >= x.buckets {
		bucket -= x.span / 2 // it has not come yet: what belongs there is in the one that will be split
	}

	return bucket
}

// retiredPlace names the hash that a bucket is in, and its field.
func (r partition) retiredPlace(bucket uint32) (key, field string) {
	number := binary.BigEndian.AppendUint32(nil, bucket/bucketsPerHash)
	return r.keyOf(kindRetired, number), string(binary.BigEndian.AppendUint16(nil, uint16(bucket%bucketsPerHash)))
}

// retirementKeys are the keys of retire_orders for the orders that ended in an hour.
func (r partition) retirementKeys(hour string) []string {
	return []string{r.keyOf(kindEnded, []byte(hour)), r.key(kindEndedHours), r.key(kindRetired)}
}

// retiredSearch is an id that is looked for, and in which bucket.
type retiredSearch struct {
	place     int // among the ids that were asked for
	partition partition
	id        delivery.OrderID
	bucket    uint32
}

// Retired reports which of the orders ended and left Redis (Lifecycle.Retire).
//
// A bucket may be split while this looks: the ids that move are then in neither the bucket that was
// read before nor the one that is read too late. So the indexes are read again afterwards, and what was not
// found is looked for once more where its bucket is another now.
func (l *Orders) Retired(ctx context.Context, ids []delivery.OrderID) ([]bool, error) {
	found := make([]bool, len(ids))
	var searches []retiredSearch
	for i, id := range ids {
		if p, ok := l.partitionOfOrder(id); ok {
			searches = append(searches, retiredSearch{place: i, partition: p, id: id})
		}
	}

	indexes, err := l.retiredIndexes(ctx, searches)
	if err != nil {
		return nil, err
	}

	for i := range searches {
		s := &searches[i]
		s.bucket = indexes[s.partition.number].bucket(s.id.Digest())
	}

	for len(searches) > 0 {
		remembered, err := l.searchRetired(ctx, searches)
		if err != nil {
			return nil, err
		}
		indexes, err := l.retiredIndexes(ctx, searches)
		if err != nil {
			return nil, err
		}

		var moved []retiredSearch
		for i, s := range searches {
			bucket := indexes[s.partition.number].bucket(s.id.Digest())
			found[s.place] = remembered[i]
			if !remembered[i] && bucket != s.bucket {
				s.bucket = bucket
				moved = append(moved, s)
			}
		}

		searches = moved
	}

	return found, nil
}

// retiredIndexes reads the index of every partition in which something is looked for.
func (l *Orders) retiredIndexes(ctx context.Context, searches []retiredSearch) (map[int]*retiredIndex, error) {
	indexes := make(map[int]*retiredIndex)
	var partitions []partition
	for _, s := range searches {
		if indexes[s.partition.number] == nil {
			indexes[s.partition.number] = new(retiredIndex)
			partitions = append(partitions, s.partition)
		}
	}

	stored, err := pipelined(ctx, l.rdb, "reading indexes of retired orders", partitions, func(pipe redis.Pipeliner, r partition) func() string {
		return pipe.Get(ctx, r.key(kindRetired)).Val
	})
	if err != nil {
		return nil, err
	}

	for i, r := range partitions {
		if *indexes[r.number], err = decodeRetiredIndex(stored[i]); err != nil {
			return nil, fmt.Errorf("partition %d: %w", r.number, err)
		}
	}

	return indexes, nil
}

// searchRetired reads the bucket of every search and reports whether the id is in it.
func (l *Orders) searchRetired(ctx context.Context, searches []retiredSearch) ([]bool, error) {
	return pipelined(ctx, l.rdb, "reading retired orders", searches, func(pipe redis.Pipeliner, s retiredSearch) func() bool {
		key, field := s.partition.retiredPlace(s.bucket)
		values := pipe.HMGet(ctx, key, field)
		return func() bool { return isRemembered(text(values.Val()[0]), s.id) }
	})
}

// isRemembered reports whether a bucket has the entry of an order.
func isRemembered(bucket string, id delivery.OrderID) bool {
	member := orderMember(id)
	entry := member[:retiredDigestSize] + member[len(member)-2:]
	for ; len(bucket) >= retiredEntrySize; bucket = bucket[retiredEntrySize:] {
		if bucket[:retiredEntrySize] == entry {
			return true
		}
	}
	return false
}
