package orders

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// The external ids of retired orders, as core/order.lua keeps them; the constants are the same there.
const (
	RetiredEntrySize  = 11 // bytes of an id in its bucket: nine of the order's digest, two of the day
	RetiredDigestSize = 9
	RetiredPrime      = 67108859
	BucketsPerHash    = 170
)

// RetiredIndex says how many external ids a partition remembers, and in which bucket each of them is.
type RetiredIndex struct {
	Ids     uint64
	Buckets uint32    // at least 1, at most retiredPrime
	Span    uint32    // the smallest power of two above buckets
	Secrets [3]uint32 // below retiredPrime; drawn once for each partition
}

const RetiredIndexSize = 26

// FirstRetiredIndex is the index of a partition that remembers no id.
func FirstRetiredIndex() RetiredIndex { return RetiredIndex{Buckets: 1, Span: 2} }

// NewRetiredIndex is firstRetiredIndex, with new secrets, as it is stored. retire_orders takes it where
// there is none.
func NewRetiredIndex() []byte {
	index := FirstRetiredIndex()
	for i := range index.Secrets {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		index.Secrets[i] = uint32(binary.BigEndian.Uint64(random[:]) % RetiredPrime)
	}
	return index.Encode()
}

func (x *RetiredIndex) Encode() []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(x.Ids>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(x.Ids))
	b = binary.BigEndian.AppendUint32(b, x.Buckets)
	b = binary.BigEndian.AppendUint32(b, x.Span)
	for _, secret := range x.Secrets {
		b = binary.BigEndian.AppendUint32(b, secret)
	}
	return b
}

// DecodeRetiredIndex reads a stored index; an empty text is that of a partition without one.
func DecodeRetiredIndex(stored string) (RetiredIndex, error) {
	if stored == "" {
		return FirstRetiredIndex(), nil
	}
	if len(stored) != RetiredIndexSize {
		return RetiredIndex{}, fmt.Errorf("the index of retired ids has %d bytes, want %d", len(stored), RetiredIndexSize)
	}

	b := []byte(stored)
	index := RetiredIndex{
		Ids:     uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:])),
		Buckets: binary.BigEndian.Uint32(b[6:]),
		Span:    binary.BigEndian.Uint32(b[10:]),
	}

	for i := range index.Secrets {
		index.Secrets[i] = binary.BigEndian.Uint32(b[14+4*i:])
	}

	if index.Buckets == 0 || index.Span <= index.Buckets || index.Span/2 > index.Buckets {
		return RetiredIndex{}, fmt.Errorf("the index of retired ids has %d buckets and a span of %d", index.Buckets, index.Span)
	}

	return index, nil
}

// Bucket returns the number of the bucket in which an order's id is, or would be.
func (x *RetiredIndex) Bucket(digest delivery.Digest) uint32 {
	hash := uint64(0)
	for i, secret := range x.Secrets {
		part := uint64(digest[3*i])<<16 | uint64(digest[3*i+1])<<8 | uint64(digest[3*i+2])
		hash += part * uint64(secret)
	}

	bucket := uint32(hash%RetiredPrime) % x.Span
	if bucket >= x.Buckets {
		bucket -= x.Span / 2 // it has not come yet: what belongs there is in the one that will be split
	}

	return bucket
}

// RetiredPlace names the hash that a bucket is in, and its field.
func RetiredPlace(r core.Partition, bucket uint32) (key, field string) {
	number := binary.BigEndian.AppendUint32(nil, bucket/BucketsPerHash)
	return r.KeyOf(core.KindRetired, number), string(binary.BigEndian.AppendUint16(nil, uint16(bucket%BucketsPerHash)))
}

// RetirementKeys are the keys of retire_orders for the orders that ended in an hour.
func RetirementKeys(r core.Partition, hour string) []string {
	return []string{r.KeyOf(core.KindEnded, []byte(hour)), r.Key(core.KindEndedHours), r.Key(core.KindRetired)}
}

// retiredSearch is an id that is looked for, and in which bucket.
type retiredSearch struct {
	place     int // among the ids that were asked for
	partition core.Partition
	id        delivery.OrderID
	bucket    uint32
}

// Retired reports which of the orders ended and left Redis (Orders.Retire).
//
// A bucket may be split while this looks: the ids that move are then in neither the bucket that was
// read before nor the one that is read too late. So the indexes are read again afterwards, and what was not
// found is looked for once more where its bucket is another now.
func (l *Orders) Retired(ctx context.Context, ids []delivery.OrderID) ([]bool, error) {
	found := make([]bool, len(ids))
	var searches []retiredSearch
	for i, id := range ids {
		if p, ok := l.core.PartitionOfOrder(id); ok {
			searches = append(searches, retiredSearch{place: i, partition: p, id: id})
		}
	}

	indexes, err := l.retiredIndexes(ctx, searches)
	if err != nil {
		return nil, err
	}

	for i := range searches {
		s := &searches[i]
		s.bucket = indexes[s.partition.Number].Bucket(s.id.Digest())
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
			bucket := indexes[s.partition.Number].Bucket(s.id.Digest())
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
func (l *Orders) retiredIndexes(ctx context.Context, searches []retiredSearch) (map[int]*RetiredIndex, error) {
	indexes := make(map[int]*RetiredIndex)
	var partitions []core.Partition
	for _, s := range searches {
		if indexes[s.partition.Number] == nil {
			indexes[s.partition.Number] = new(RetiredIndex)
			partitions = append(partitions, s.partition)
		}
	}

	stored, err := core.Pipelined(ctx, l.core.Redis, "reading indexes of retired orders", partitions, func(pipe redis.Pipeliner, r core.Partition) func() string {
		return pipe.Get(ctx, r.Key(core.KindRetired)).Val
	})
	if err != nil {
		return nil, err
	}

	for i, r := range partitions {
		*indexes[r.Number], err = DecodeRetiredIndex(stored[i])
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", r.Number, err)
		}
	}

	return indexes, nil
}

// searchRetired reads the bucket of every search and reports whether the id is in it.
func (l *Orders) searchRetired(ctx context.Context, searches []retiredSearch) ([]bool, error) {
	return core.Pipelined(ctx, l.core.Redis, "reading retired orders", searches, func(pipe redis.Pipeliner, s retiredSearch) func() bool {
		key, field := RetiredPlace(s.partition, s.bucket)
		values := pipe.HMGet(ctx, key, field)
		return func() bool { return isRemembered(core.Text(values.Val()[0]), s.id) }
	})
}

// isRemembered reports whether a bucket has the entry of an order.
func isRemembered(bucket string, id delivery.OrderID) bool {
	member := core.OrderMember(id)
	entry := member[:RetiredDigestSize] + member[len(member)-2:]
	for ; len(bucket) >= RetiredEntrySize; bucket = bucket[RetiredEntrySize:] {
		if bucket[:RetiredEntrySize] == entry {
			return true
		}
	}
	return false
}
