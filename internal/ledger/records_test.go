package ledger

import (
	"errors"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
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

		got, err := core.DecodeUpdate(string(core.EncodeUpdate(u)))
		require(t, err == nil && reflect.DeepEqual(got, u), "got %+v, %v, want %+v", got, err, u)
	})
}

func FuzzDecodeOrder(f *testing.F) {
	o := &delivery.Order{OrderDraft: *testDraft("X-1"), CreatedAt: time.Now(), Version: 1<<32 | 1}
	record := core.AppendOrderRecord(nil, o, &o.Fleet, core.FlagKeyIsExternal, 0, [16]byte{})
	record = core.AppendChange(record, &delivery.Change{Status: delivery.Assigned, At: time.Now()})
	record = core.AppendChange(record, &delivery.Change{Kind: delivery.CourierReplaced, Status: delivery.Assigned, At: time.Now(), Courier: delivery.Courier{Name: "Ali"}})
	record = core.AppendAccepted(record, delivery.Courier{Name: "Ali"})
	f.Add(string(record))
	kept := core.EncodeShrunk(get(core.DecodeOrder(string(record), 3))(f))
	f.Add("\x02" + string(record[1:core.OrderLocationAt]) + string(kept[:core.OrderFleetAt-core.OrderLocationAt]) + string(record[core.OrderFleetAt:core.OrderHead]) + string(kept[core.OrderFleetAt-core.OrderLocationAt:]))
	f.Fuzz(func(t *testing.T, record string) {
		if o, err := core.DecodeOrder(record, 3); err == nil && o.ID.Partition() != 3 {
			t.Errorf("order %s of partition 3", o.ID)
		}
	})
}

func TestOpen_RefusesOtherPartitions(t *testing.T) {
	l := openTest(t)
	cfg := core.Config{Environment: "sandbox", Secrets: testSecrets}
	sameDatabase(l)(&cfg)
	cfg.Partitions = 8
	check(t, errOf(Open(t.Context(), cfg)) != nil, "opened with another number of partitions")
	cfg.Partitions = 0
	same := get(Open(t.Context(), cfg))(t)
	check(t, same.Partitions() == 4, "%d partitions, want the stored 4", same.Partitions())
	must(t, same.Close())
	cfg.Environment = "production"
	other := get(Open(t.Context(), cfg))(t)
	check(t, other.Partitions() == core.DefaultPartitions, "production has %d partitions", other.Partitions())
	must(t, other.Close())
}

// The shared server knows no WAITAOF, or has no append-only file.
func TestOpen_RefusesAServerThatCannotConfirm(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), core.Config{URL: testserver.NewRedis(t).URL, Environment: "sandbox", Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	if err == nil || errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "redis.durability: replica needs Valkey, or Redis 7.2") {
		t.Error(err)
	}
}

func TestOpen_ReportsAnUnavailableRedis(t *testing.T) {
	_, err := Open(t.Context(), core.Config{URL: "redis://127.0.0.1:1", Environment: "sandbox"})
	check(t, errors.Is(err, delivery.ErrUnavailable), "got %v", err)
	for _, cfg := range []core.Config{{URL: "http://x", Environment: "sandbox"}, {URL: "redis://127.0.0.1:1", Environment: "staging"}, {URL: "redis://127.0.0.1:1", Environment: "sandbox", Partitions: 2000}} {
		if _, err := Open(t.Context(), cfg); err == nil || errors.Is(err, delivery.ErrUnavailable) {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
}

// FuzzParseJobCursor: whatever a fleet sends as a cursor is one that leads to
// itself again, or is refused.
func FuzzParseJobCursor(f *testing.F) {
	for _, seed := range []string{"", "3.1700000000000.00ff", "-1.0.00", "1.2", "1.2.zz", "99999999999999999999.0.", "+1.-5.AB", "1.2.3.4"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		c, err := orders.ParseJobCursor(text)
		if err != nil {
			check(t, delivery.CodeOf(err) == delivery.CodeValidationFailed, "%q: %v", text, err)
			return
		}

		if again, err := orders.ParseJobCursor(c.String()); text != "" && (err != nil || again != c) || c.Partition < 0 {
			t.Errorf("%q is %+v, then %+v, %v", text, c, again, err)
		}
	})
}

// FuzzRecords: a record that a crash or a stranger's hand has spoilt is refused
// or read, never a panic; and what was read is written back the same.
func FuzzRecords(f *testing.F) {
	at := time.UnixMilli(1_795_000_000_123)
	update := &delivery.Update{Kind: delivery.KindStatus, Status: delivery.Failed, At: at, ETA: at, Failure: "Other", Courier: delivery.Courier{Name: "Ali"}}
	store := &delivery.Store{State: delivery.Active, ExternalID: "s1", Name: "n", Point: delivery.Point{Latitude: 41, Longitude: 29}, UpdatedAt: at}
	f.Add(string(core.EncodeUpdate(update)))
	f.Add(string(accounts.EncodeStore(store)))
	f.Add(string(accounts.EncodeNotice(&accounts.Notice{Type: delivery.StoreActivated, OccurredAt: at, Data: []byte("{}")})))
	f.Add("ok\n" + strings.Repeat("\x00", limits.QuotaSize) + "payload")
	f.Add(string(rune(core.EventOrder)) + strings.Repeat("x", partitions.OrderEventSize-1))
	f.Add(strings.Repeat("\xff", 40))
	f.Add(string(accounts.EncodeControls(&delivery.Fleet{Suspended: true, RequestsPerSecond: 7})))
	f.Add(string(accounts.EncodeSecrets(&accounts.FleetSecrets{Current: "c", Earlier: []core.EarlierSecret{{Secret: "e", Until: at}}})))
	f.Fuzz(func(t *testing.T, record string) {
		if u, err := core.DecodeUpdate(record); err == nil && !isNaN(u.Location.Point) {
			again, err := core.DecodeUpdate(string(core.EncodeUpdate(u)))
			sameRecord(t, u, again, err)
		}

		if s, err := accounts.DecodeStore(record); err == nil && !isNaN(s.Point) {
			again, err := accounts.DecodeStore(string(accounts.EncodeStore(s)))
			sameRecord(t, s, again, err)
		}

		if n, err := accounts.DecodeNotice(record); err == nil {
			again, err := accounts.DecodeNotice(string(accounts.EncodeNotice(n)))
			sameRecord(t, n, again, err)
		}

		if c, err := limits.ParseCountingReply(record); err == nil && !strings.HasPrefix(record, c.Name) {
			t.Errorf("%q is %+v", record, c)
		}

		if f, err := accounts.DecodeFleet(record); err == nil {
			again, err := accounts.DecodeFleet(string(accounts.EncodeFleet(f)))
			sameRecord(t, f.Name, again.Name, err)
		}

		var f delivery.Fleet
		if err := accounts.DecodeControls(&f, record); err == nil {
			var again delivery.Fleet
			err := accounts.DecodeControls(&again, string(accounts.EncodeControls(&f)))
			sameRecord(t, f, again, err)
		} else if !f.Disabled {
			t.Error("a fleet whose controls cannot be read is not disabled")
		}

		if s, err := accounts.DecodeSecrets(record); err == nil {
			again, err := accounts.DecodeSecrets(string(accounts.EncodeSecrets(&s)))
			sameRecord(t, s, again, err)
		}
	})
}

func isNaN(p delivery.Point) bool { return math.IsNaN(p.Latitude) || math.IsNaN(p.Longitude) }

func sameRecord(t *testing.T, first, again any, err error) {
	t.Helper()
	check(t, err == nil && reflect.DeepEqual(first, again), "%+v became %+v, %v", first, again, err)
}
