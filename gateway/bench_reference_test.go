package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/limits"
)

// reference creates orders with something else in place of the ledger, behind
// everything else that the gateway does: listener, token, JSON, the order's
// rules, the SHA-256 of the body, the headers of the limits, the answer.
type reference struct {
	keep func(g *gateway, x *requestContext, o *delivery.Order, key string, fingerprint [sha256.Size]byte) error
	sent atomic.Int64
}

func (r *reference) createOrder(g *gateway, x *requestContext) error {
	key, broken, err := x.readOrder(true)
	if err := errors.Join(broken, err); err != nil {
		return err
	}

	o := delivery.Order{
		ID:         delivery.MakeOrderID(0, delivery.DayOf(x.now), delivery.OrderDigest(x.account, x.draft.ExternalOrderID)),
		Account:    x.account,
		OrderDraft: x.draft,
		CreatedAt:  x.now,
		Status:     delivery.Searching,
		Fleet:      delivery.FleetTerms{Name: "Kurye", DeliveryMinutes: 25},
	}
	if err := r.keep(g, x, &o, key, sha256.Sum256(x.body)); err != nil {
		return err
	}

	x.quota = limits.Quota{Limit: 1_000_000, Remaining: int(1_000_000 - r.sent.Add(1)%1_000_000), Reset: x.now.Unix() + 60}
	g.answerCreated(x, &o)

	return nil
}

// newNothingReference keeps nothing: what is left is the gateway itself.
func newNothingReference(testing.TB, *benchEnv) *reference {
	return &reference{keep: func(*gateway, *requestContext, *delivery.Order, string, [sha256.Size]byte) error { return nil }}
}

// oneXAdd is one bare XADD of the bytes that the ledger keeps of such an order,
// its record and its event, to as many streams as there are partitions. It is
// written for speed: it packs no order, and allocates little.
func oneXAdd(t testing.TB, s *benchEnv, rdb redis.UniversalClient) *reference {
	t.Helper()
	stored := s.storedOrder(t)
	streams := make([]any, s.settings.Redis.Partitions)
	for i := range streams {
		streams[i] = fmt.Sprintf("{%d}orders", i)
	}

	return &reference{keep: func(g *gateway, x *requestContext, _ *delivery.Order, _ string, fingerprint [sha256.Size]byte) error {
		x.out = append(x.out[:0], stored...)
		copy(x.out, fingerprint[:])
		add := redis.NewStringCmd(g.work, "xadd", streams[int(x.account[0])%len(streams)], "*", "e", x.out)
		return rdb.Process(g.work, add)
	}}
}

// storedOrder creates an order and reads back what the ledger keeps of it: the
// record and the stream's event, one behind the other.
func (s *benchEnv) storedOrder(t testing.TB) []byte {
	t.Helper()
	a := s.send(request{method: "POST", url: s.vendor + "/api/vendor/v1/orders", token: s.accounts[0].token, body: loadBody})
	if a.status != 201 {
		t.Fatalf("POST /orders: %d %s", a.status, a.body)
	}

	id, err := delivery.ParseOrderID(a.data["orderId"].(string))
	if err != nil {
		t.Fatal(err)
	}

	digest := id.Digest()
	keys, err := s.rdb.Keys(t.Context(), "*}o*").Result()
	if err != nil {
		t.Fatal(err)
	}

	at := slices.IndexFunc(keys, func(key string) bool { return strings.HasSuffix(key, "}o"+string(digest[:])) })
	if at < 0 {
		t.Fatal("there is no record of the order")
	}

	stored, err := s.rdb.Get(t.Context(), keys[at]).Result()
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.rdb.XRevRangeN(t.Context(), strings.TrimSuffix(keys[at], "o"+string(digest[:]))+"e", "+", "-", 1).Result()
	if err != nil || len(events) != 1 {
		t.Fatalf("%v, %v", events, err)
	}

	for _, value := range events[0].Values {
		stored += value.(string)
	}

	return []byte(stored)
}

// newXAddReference is oneXAdd through a plain pool of connections.
func newXAddReference(t testing.TB, s *benchEnv) *reference { return oneXAdd(t, s, s.client(t)) }

// newXAddPipelinesReference is oneXAdd through an AutoPipeline, full duplex over
// one connection. That is the fastest XADD: half duplex, with 1 to 16 batches
// in progress or over 1 to 8 connections, costs as much CPU at best, and holds
// requests back to fill its batches.
func newXAddPipelinesReference(t testing.TB, s *benchEnv) *reference {
	t.Helper()
	options := redis.DefaultBlockingAutoPipelineOptions()
	options.FullDuplex, options.NumShards = true, 1
	pipeline, err := s.client(t).AutoPipelineWithOptions(options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = pipeline.Close() })
	return oneXAdd(t, s, pipeline)
}

// newPlainReference is the plain way to build it: a limiter's call for each of
// the two windows, the idempotency key, the order, and the document for whoever
// works on it, one after the other. It is not atomic, and its windows let up to
// twice as many pass.
func newPlainReference(t testing.TB, s *benchEnv) *reference {
	t.Helper()
	rdb := s.client(t)
	limiter := redis_rate.NewLimiter(rdb)
	windows := []redis_rate.Limit{
		{Rate: 1_000_000, Burst: 1_000_000, Period: time.Minute},
		{Rate: 1_000_000, Burst: 1_000_000, Period: 10 * time.Second},
	}

	names := []string{"minute:", "burst:"}

	return &reference{keep: func(g *gateway, x *requestContext, o *delivery.Order, key string, fingerprint [sha256.Size]byte) error {
		account, id := string(o.Account[:]), string(o.ID[:])
		for i, window := range windows {
			result, err := limiter.Allow(g.work, names[i]+account, window)
			if err != nil {
				return err
			}
			if result.Allowed == 0 {
				return delivery.Refuse(delivery.CodeRateLimited, "the limit is used up")
			}
		}

		fresh, err := rdb.SetNX(g.work, "idempotency:"+account+key, string(fingerprint[:])+id, 24*time.Hour).Result()
		if err != nil {
			return err
		}

		if !fresh {
			return delivery.Refuse(delivery.CodeDuplicateOrder, "this idempotency key was used")
		}

		err = rdb.HSet(g.work, "order:"+id, "account", account, "store", o.ExternalStoreID, "externalOrderId", o.ExternalOrderID,
			"status", o.Status.String(), "createdAt", o.CreatedAt.UnixMilli(), "document", x.body).Err()
		if err != nil {
			return err
		}

		return rdb.XAdd(g.work, &redis.XAddArgs{Stream: "orders", Values: []any{"id", id, "document", x.body}}).Err()
	}}
}
