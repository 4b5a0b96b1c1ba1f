package ledger

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

func TestUpdate_SurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "at")).UTC()
		u := &delivery.Update{Kind: delivery.UpdateKind(rapid.IntRange(1, 3).Draw(t, "kind")), Status: delivery.Status(rapid.IntRange(1, 8).Draw(t, "status")),
			At: at, Failure: delivery.FailureReason(rapid.String().Draw(t, "failure")),
			Courier: delivery.Courier{Name: rapid.String().Draw(t, "name"), Phone: rapid.String().Draw(t, "phone")}}
		if rapid.Bool().Draw(t, "located") {
			u.Location = delivery.Location{Point: taksim, At: at}
		}
		got, err := decodeUpdate(string(encodeUpdate(u)))
		require(t, err == nil && reflect.DeepEqual(got, u), "got %+v, %v, want %+v", got, err, u)
	})
}

func FuzzDecodeOrder(f *testing.F) {
	o := &delivery.Order{OrderDraft: *testDraft("X-1"), CreatedAt: time.Now(), Version: 1<<32 | 1}
	record := appendOrderRecord(nil, o, &o.Fleet, 0, [16]byte{}, true)
	record = appendChange(record, &delivery.Change{Status: delivery.Assigned, At: time.Now()}, 1)
	record = appendSwap(record, delivery.Courier{Name: "Ali"})
	f.Add(string(record))
	f.Fuzz(func(t *testing.T, record string) {
		if o, err := decodeOrder(record, 3); err == nil && o.ID.Partition() != 3 {
			t.Errorf("order %s of partition 3", o.ID)
		}
	})
}

func TestOpen_RefusesOtherPartitions(t *testing.T) {
	l := openTest(t)
	cfg := Config{Environment: "sandbox", Secrets: testSecrets}
	sameDatabase(l)(&cfg)
	cfg.Partitions = 8
	check(t, errOf(Open(t.Context(), cfg)) != nil, "opened with another number of partitions")
	cfg.Partitions = 0
	same := get(Open(t.Context(), cfg))(t)
	check(t, same.Partitions() == 4, "%d partitions, want the stored 4", same.Partitions())
	must(t, same.Close())
	cfg.Environment = "production"
	other := get(Open(t.Context(), cfg))(t)
	check(t, other.Partitions() == DefaultPartitions, "production has %d partitions", other.Partitions())
	must(t, other.Close())
}

func TestOpen_SaysThatRedisIsAway(t *testing.T) {
	_, err := Open(t.Context(), Config{URL: "redis://127.0.0.1:1", Environment: "sandbox"})
	check(t, errors.Is(err, delivery.ErrUnavailable), "got %v", err)
	for _, cfg := range []Config{{URL: "http://x", Environment: "sandbox"}, {URL: "redis://127.0.0.1:1", Environment: "staging"}, {URL: "redis://127.0.0.1:1", Environment: "sandbox", Partitions: 2000}} {
		if _, err := Open(t.Context(), cfg); err == nil || errors.Is(err, delivery.ErrUnavailable) {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
}
