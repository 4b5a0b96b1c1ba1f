package owner

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/worker/status"
)

// fullEnv is a ledger in a Redis of its own with the users of the programs, so that it can be full.
type fullEnv struct {
	*env
	past  []delivery.OrderID // ended, exported and past their retention
	quiet *testenv.Vendor    // has no orders; its stream has entries past their retention
}

// agingLua lets all ended orders of a ledger have ended thirty hours earlier.
const agingLua = `#!lua flags=allow-oom
for _, key in ipairs(redis.call('KEYS', '*}R*')) do
  local prefix, hour = string.match(key, '^({[^}]+})R(%d+)$')
  if hour then -- orders' keys end in any bytes
    redis.call('RENAME', key, prefix .. 'R' .. (hour - 30))
    redis.call('ZREM', prefix .. 'H', hour)
    redis.call('ZADD', prefix .. 'H', hour - 30, hour - 30)
  end
end
return 1`

// streamsLua fills the streams of outcomes, which the exporter has read, and the stream of an account,
// with entries of thirty hours ago.
const streamsLua = "#!lua flags=allow-oom\n" + testenv.PrefixesLua + `
local account, entries, text = ARGV[1], tonumber(ARGV[2]), string.rep('x', 500)
local at = string.format('%d', redis.call('TIME')[1] * 1000 - 30 * 3600000)
for _, prefix in ipairs(prefixes()) do
  for i = 1, entries do
    redis.call('XADD', prefix .. 'v', at .. '-' .. i, 'o', text)
    if redis.call('SISMEMBER', prefix .. 'A', account) == 1 then
      redis.call('XADD', prefix .. 'E' .. account, at .. '-' .. i, 'm', text)
    end
  end
  if entries > 0 then redis.call('XGROUP', 'SETID', prefix .. 'v', 'export', '$') end
end
return 1`

// entriesLua counts what is left of that; what came later is younger than an hour. The last entry that
// a group has read stays and marks the place.
const entriesLua = testenv.PrefixesLua + `
local left, young = 0, string.format('%d', redis.call('TIME')[1] * 1000 - 3600000)
for _, prefix in ipairs(prefixes()) do
  left = left + math.max(#redis.call('XRANGE', prefix .. 'v', '-', young) - 1, 0) + #redis.call('XRANGE', prefix .. 'E' .. ARGV[1], '-', young)
end
return left`

func (e *fullEnv) entriesLeft() int64 {
	e.T.Helper()
	left, ok := e.Do("EVAL", entriesLua, 0, string(e.quiet.Account[:])).(int64)
	if !ok {
		e.T.Fatal("no count of entries")
	}
	return left
}

// cancelledPerVendor is fewer than a vendor may cancel in a minute.
const cancelledPerVendor = 400

// newFullEnv has so many ended orders, of one and a half kilobytes each, and so many entries in each
// of some streams, that are past their retention.
func newFullEnv(t *testing.T, orders, entries int) *fullEnv {
	t.Helper()
	t.Parallel()

	users := &stack.Users{Environment: "sandbox", Passwords: map[string]string{}}
	for _, user := range []string{stack.GatewayUser, stack.WorkerUser, stack.ReportingUser, stack.BackupUser, stack.OperatorUser} {
		users.Passwords[user] = "password-of-" + user
	}

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Extra: []string{"--appendfsync", "no"}, Users: users})
	t.Cleanup(func() { testenv.Must(t, testserver.Denied(context.Background(), server)) })
	e := &fullEnv{env: &env{Env: testenv.NewOn(t, server)}}
	e.quiet = e.Vendor()
	e.Do("EVAL", streamsLua, 0, string(e.quiet.Account[:]), entries)

	e.vendor = e.Vendor()
	stop := e.Start(e.newRole("before").Run)
	for n := range orders {
		if n%cancelledPerVendor == 0 {
			e.vendor = e.Vendor()
			e.vendor.Edit = func(d *delivery.OrderDraft) { d.Dropoff.Note = strings.Repeat("Zil ", 120) }
		}
		o := e.order()
		_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, o.ID, "", "", time.Now())
		testenv.Must(t, err)
		e.past = append(e.past, o.ID)
	}

	e.AwaitSettled(ledger.RoleStatus)
	e.AwaitSettled(ledger.RoleWebhook)
	e.Consume(ledger.RoleExport)
	stop()
	e.Do("EVAL", agingLua, 0)

	return e
}

// settings of a worker whose own rounds of housekeeping are an hour apart.
func (e *fullEnv) settings(streamRetention time.Duration) status.Settings {
	return status.Settings{Batch: 64, TimerInterval: 100 * time.Millisecond, HousekeepingInterval: time.Hour,
		ShrinkAfter: 24 * time.Hour, Retention: 25 * time.Hour, StreamRetention: streamRetention}
}

func (e *fullEnv) usedMemory() int64 {
	e.T.Helper()
	servers, err := e.Ledger.Monitor.Memory(e.T.Context())
	testenv.Must(e.T, err)
	return servers[0].MemoryUsed
}

// fill gives Redis less memory than it uses, by so many bytes.
func (e *fullEnv) fill(excess int64) {
	e.T.Helper()
	e.Do("CONFIG", "SET", "maxmemory", strconv.FormatInt(e.usedMemory()-excess, 10))
}

// accepts reports whether Redis takes an order.
func (e *fullEnv) accepts(number int) bool {
	draft := &delivery.OrderDraft{ExternalStoreID: e.vendor.Store.ExternalID, ExternalOrderID: fmt.Sprint("probe-", number), ReadyAt: time.Now(),
		Recipient: delivery.Recipient{Name: "Ali Veli", Phone: "5321234567"},
		Dropoff:   delivery.Dropoff{Text: "Bahariye Cd. No 5 D 3", Point: delivery.Point{Latitude: 40.99, Longitude: 29.03}}}
	_, _, err := e.Ledger.Orders.Create(e.T.Context(), &orders.Creation{
		Account: e.vendor.Account, IdempotencyKey: draft.ExternalOrderID, Body: []byte(draft.ExternalOrderID), Draft: draft, Now: time.Now(),
		Candidates: []accounts.Candidate{{Terms: e.Fleet.Terms(), Covers: true}},
	})
	return err == nil
}

func (e *fullEnv) awaitAccepted() {
	e.T.Helper()
	number := 0
	e.Await("orders are accepted again", func() bool {
		number++
		return e.accepts(number)
	})
}

func (e *fullEnv) stored() (n int) {
	e.T.Helper()
	orders, err := e.Ledger.Orders.GetAll(e.T.Context(), e.past)
	testenv.Must(e.T, err)
	for _, o := range orders {
		if o != nil {
			n++
		}
	}
	return n
}

func TestFullRedis_OrdersPastTheirRetentionMakeRoom(t *testing.T) {
	e := newFullEnv(t, 800, 0)
	worker := e.roleWithSettings(e.OpenAs(stack.WorkerUser), "w1", e.settings(25*time.Hour))
	e.Start(worker.Run)
	e.awaitOwners(testenv.Partitions, "w1")

	e.fill(300_000)
	if e.accepts(0) {
		t.Fatal("an order was accepted at maxmemory")
	}

	e.awaitAccepted()
	e.Await("no order past its retention is left", func() bool { return e.stored() == 0 })
	e.awaitOwners(testenv.Partitions, "w1") // it has kept them, or nobody would have
}

// The entries are more than one command drops.
func TestFullRedis_StreamsPastTheirRetentionMakeRoom(t *testing.T) {
	e := newFullEnv(t, 0, 12_000)
	e.Start(e.roleWithSettings(e.OpenAs(stack.WorkerUser), "w1", e.settings(25*time.Hour)).Run)
	e.awaitOwners(testenv.Partitions, "w1")

	e.fill(1_000_000)
	if e.accepts(0) {
		t.Fatal("an order was accepted at maxmemory")
	}

	e.awaitAccepted()
	e.Await("nothing past its retention is left in the streams", func() bool { return e.entriesLeft() == 0 })
}

// Workers of the same release start while Redis is full: they open the ledger, take partitions of
// which the owner is gone, and go on.
func TestFullRedis_WorkersThatStartMakeRoom(t *testing.T) {
	e := newFullEnv(t, 400, 500)
	stop := e.Start(e.newRole("w1").Run)
	e.awaitOwners(testenv.Partitions, "w1")
	e.fill(300_000)
	stop()
	if e.accepts(0) {
		t.Fatal("an order was accepted at maxmemory")
	}

	e.Start(e.roleWithSettings(e.OpenAs(stack.WorkerUser), "w2", e.settings(25*time.Hour)).Run)

	e.awaitAccepted()
	e.awaitOwners(testenv.Partitions, "w2")
	e.Await("nothing past its time is left", func() bool { return e.stored() == 0 && e.entriesLeft() == 0 })
}

// What was accepted before Redis was full is decided, also by an owner that takes the partition only
// then and finds the groups of consumers gone.
func TestFullRedis_WhatWasAcceptedIsDecided(t *testing.T) {
	e := newFullEnv(t, 0, 0)
	o := e.order()
	e.Accept(o, time.Now())
	e.Do("EVAL", testenv.PrefixesLua+`for _, prefix in ipairs(prefixes()) do redis.call('XGROUP', 'DESTROY', prefix .. 'u', 'status') end return 1`, 0)
	e.fill(1_000_000)

	e.Start(e.roleWithSettings(e.OpenAs(stack.WorkerUser), "w1", e.settings(25*time.Hour)).Run)

	e.AwaitStatus(o, delivery.Assigned)
	if e.accepts(0) {
		t.Error("an order was accepted at maxmemory")
	}
}
