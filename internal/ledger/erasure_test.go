package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// newErasureEnv erases with the rights of the user who does.
func newErasureEnv(t *testing.T) (*env, *operations.Erasure) {
	t.Helper()
	r := testserver.NewRedis(t)
	s := newVendor(t, openTest(t, func(c *core.Config) { c.URL, c.Partitions = r.URL, 2 }))
	return s, openTest(t, func(c *core.Config) { c.URL, c.Partitions, c.ClockKey = r.URLFor(stack.BackupUser), 0, "" }).Erasure
}

// personal are texts of the recipient of these tests, as records hold them.
func personal(d *delivery.OrderDraft) []string {
	return []string{d.Recipient.Name, d.Recipient.Phone, d.Dropoff.Text, "Kapıya bırakın", "vazgeçti",
		string(core.AppendFloat(nil, d.Dropoff.Latitude))}
}

// everything is all that the keys of the partitions hold.
func (s *env) everything(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, r := range s.core.Partitions {
		for _, key := range get(s.core.Redis.Keys(t.Context(), r.Prefix+"*").Result())(t) {
			all.WriteString(get(s.core.Redis.Dump(t.Context(), key).Result())(t))
		}
	}
	return all.String()
}

func silent(string, int) {}

var erasedAt = time.Date(2026, time.November, 26, 9, 0, 0, 123e6, time.UTC)

func one(id delivery.OrderID) map[delivery.OrderID]time.Time {
	return map[delivery.OrderID]time.Time{id: erasedAt}
}

// However an order ended, and whether it has shrunk by itself: the vendor's answers, webhooks' ids,
// late deliveries and the export are as before, and nothing of the recipient is left.
func TestErase_LeavesNothingOfTheRecipient(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	whole := delivered(now.Add(-time.Hour))
	door := delivery.Location{Point: delivery.Point{Latitude: 41.03712345, Longitude: 28.98}, At: now}
	whole[3].Location, whole[4].Location = door, door
	for name, end := range map[string]func(*testing.T, *env, *delivery.Order){
		"delivered": func(t *testing.T, s *env, o *delivery.Order) { s.reports(t, o, whole...) },
		"cancelled": func(t *testing.T, s *env, o *delivery.Order) {
			get2(s.Orders.Cancel(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", now))(t)
		},
		"cancelled and shrunk": func(t *testing.T, s *env, o *delivery.Order) {
			get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "vazgeçti", now))(t)
			s.shrink(t)
		},
		"failed": func(t *testing.T, s *env, o *delivery.Order) {
			s.change(t, o, delivery.Change{Status: delivery.Failed, At: now, Failure: delivery.NoCourierFound})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, erasure := newErasureEnv(t)
			c := s.creation("X-1", "K-1")
			c.Draft.PackageNote, c.Draft.Dropoff.Point = "Kapıya bırakın", door.Point
			created, _ := get2(s.Orders.Create(t.Context(), c))(t)
			answer := string(created.Order.AppendCreated(nil, ""))
			other := s.create(t, "X-2")
			end(t, s, created.Order)
			for _, r := range s.core.Partitions { // what was reported goes as soon as it is decided
				must(t, s.core.Redis.Del(t.Context(), r.Key(core.KindUpdates)).Err())
			}

			want := get(s.Orders.Get(t.Context(), created.Order.ID))(t)
			require(t, !want.Shrunk() || want.Changes[0].Note != "", "nothing is to be erased")

			must(t, erasure.Erase(t.Context(), one(want.ID), false, silent))
			want.Erase(erasedAt)
			want.Accepted = delivery.Courier{}
			got, _ := get2(s.Orders.Poll(t.Context(), s.account, want.ID))(t)
			equal(t, got, want, "GET")
			check(t, got.Shrunk() && got.ErasedAt.Equal(erasedAt), "%+v", got)
			equal(t, get(s.Orders.Get(t.Context(), other.ID))(t).Recipient, testDraft("").Recipient, "the recipient of another order")
			must(t, s.core.Redis.Del(t.Context(), s.core.PartitionOf(s.account).Order(other.ID.Digest())).Err())
			left := s.everything(t)
			for _, text := range personal(c.Draft) {
				check(t, !strings.Contains(left, text), "%q is left", text)
			}

			again, _ := get2(s.Orders.Create(t.Context(), c))(t)
			check(t, again.Replayed && string(again.Order.AppendCreated(nil, "")) == answer, "a replay after %s: %+v", answer, again.Order)
			if want.Status == delivery.Failed {
				s.wantReport(t, delivery.Update{Order: want.ID, Kind: delivery.KindStatus, Status: delivery.Delivered}, "", s.updates(t, want.ID)+1)
			}

			must(t, erasure.Erase(t.Context(), map[delivery.OrderID]time.Time{want.ID: erasedAt.Add(time.Hour)}, false, silent))
			s.shrink(t)
			equal(t, get(s.Orders.Get(t.Context(), want.ID))(t).ErasedAt, erasedAt, "the day after a repetition")
		})
	}
}

// A restored backup may be of a time when the order had not ended.
func TestErase_LeavesAnOrderInProgressUnlessToldOtherwise(t *testing.T) {
	for status := delivery.Searching; status < delivery.Delivered; status++ {
		t.Run(status.String(), func(t *testing.T) {
			s, erasure := newErasureEnv(t)
			o := s.create(t, "X-1")
			s.list(t, o.ID)
			for _, u := range delivered(time.Now())[:status-delivery.Searching] {
				s.reports(t, o, u)
			}

			changes := 5
			if status > delivery.Assigned {
				changes = 6
				s.reports(t, o, delivery.Update{Kind: delivery.KindSwap, Courier: ali, At: time.Now().Truncate(time.Millisecond)})
			}

			get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: delivery.Location{Point: taksim, At: erasedAt}}}, time.Now()))(t)
			want := get(s.Orders.Get(t.Context(), o.ID))(t)
			must(t, erasure.Erase(t.Context(), one(o.ID), false, silent))
			equal(t, get(s.Orders.Get(t.Context(), o.ID))(t), want, "the order in progress")

			must(t, erasure.Erase(t.Context(), one(o.ID), true, silent))
			want.Erase(erasedAt)
			want.Changes = append([]delivery.Change{}, want.Changes...)
			equal(t, get(s.Orders.Get(t.Context(), o.ID))(t), want, "the erased order")
			left := get(s.core.Redis.Get(t.Context(), s.core.PartitionOf(s.account).Order(o.ID.Digest())).Result())(t)
			for _, text := range personal(testDraft("")) {
				check(t, !strings.Contains(left, text), "%q is left", text)
			}

			accept, reports := delivery.Update{Order: o.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: want.Accepted}, s.updates(t, o.ID)
			if status == delivery.Searching {
				accept.Courier, reports = mehmet, reports+1
			}

			s.wantReport(t, accept, "", reports)
			for next := status + 1; next <= delivery.Delivered; next++ {
				s.advance(t, o.ID, next)
			}

			s.shrink(t)
			ended := get(s.Orders.Get(t.Context(), o.ID))(t)
			check(t, ended.ErasedAt.Equal(erasedAt) && ended.Status == delivery.Delivered && len(ended.Changes) == changes, "%+v", ended)
		})
	}
}

// The worker has read an order to shrink it, and writes after the erasure.
func TestErase_IsNotUndoneByShrinking(t *testing.T) {
	s, erasure := newErasureEnv(t)
	o := s.create(t, "X-1")
	get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "vazgeçti", time.Now()))(t)
	read := get(s.Orders.Get(t.Context(), o.ID))(t)
	must(t, erasure.Erase(t.Context(), one(o.ID), false, silent))
	r := s.core.PartitionOf(s.account)
	equal(t, get(s.core.Run(t.Context(), "shrink_orders", []string{r.Key(core.KindShrunk)}, "0 0", r.Order(o.ID.Digest()),
		binary.BigEndian.AppendUint64(nil, read.Version), core.EncodeShrunk(read)))(t), any(int64(0)), "orders shrunk")
	equal(t, get(s.Orders.Get(t.Context(), o.ID))(t).Changes[0].Note, "", "the note")
}

// overtaking has somebody write before the next transaction.
type overtaking struct {
	redis.Hook
	times int
	write func()
}

func (o *overtaking) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (o *overtaking) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (o *overtaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if commands[0].Name() == "multi" && o.times > 0 {
			o.times--
			o.write()
		}
		return next(ctx, commands)
	}
}

// What a gateway notes in the order while it is rewritten stays: it is rewritten again.
func TestErase_RepeatsWhatOthersHaveOvertaken(t *testing.T) {
	s, erasure := newErasureEnv(t)
	o := s.create(t, "X-1")
	s.change(t, o, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.OtherFailure})
	key := s.core.PartitionOf(s.account).Order(o.ID.Digest())
	others := &overtaking{times: 2, write: func() {
		must(t, s.core.Redis.SetRange(t.Context(), key, partitions.OrderReportedAt, string(rune(delivery.Delivered))).Err())
	}}
	erasure.Core.Redis.AddHook(others)
	must(t, erasure.Erase(t.Context(), one(o.ID), false, silent))
	got := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, others.times == 0 && got.Reported == delivery.Delivered && got.ErasedAt.Equal(erasedAt), "%+v", got)
	must(t, s.core.Redis.SetRange(t.Context(), key, 0, "\x09").Err())
	err := erasure.Erase(t.Context(), one(o.ID), false, silent)
	check(t, errors.Is(err, core.ErrShortRecord) && !errors.Is(err, delivery.ErrUnavailable), "%v", err)
}

// Receivers answer whatever they like. What names the erased order goes, also where it was written
// together with others.
func TestErase_DropsWhatReceiversAnswered(t *testing.T) {
	s := newWebhookEnv(t)
	gone, keys := s.moved(t, "X-1", delivery.Assigned, delivery.Failed)
	kept, others := s.moved(t, "X-2", delivery.Assigned)
	notice := s.publish(t, 1)[0]
	for _, together := range [][]string{{keys[0]}, {others[0]}, {notice, keys[1]}, {notice, others[0]}, {keys[0]}} {
		var lines [][]byte
		for _, key := range together {
			a := partitions.AttemptRecord{Attempt: 1, At: s.now(), State: partitions.StateRetrying, HTTPStatus: 500, Error: "status: 500", Answer: "Ayşe"}
			line, _ := a.Lines(partitions.GoneEvent(s.core.Partitions[0], key), false)
			lines = append(lines, line)
		}
		s.owns(t, func(step *partitions.Step) { step.Log(s.account, lines, 10, false) })
	}

	equal(t, len(s.attempts(t, "")), 7, "lines before")
	for range 2 {
		must(t, s.Erasure.Erase(t.Context(), one(gone.ID), false, silent))
		left := s.attempts(t, "")
		check(t, len(left) == 3 && left[0].OrderID == kept.ID.String() && left[1].OrderID == "" && left[2].Answer == "Ayşe", "%+v", left)
	}
}

// The append-only file is the last place: it holds every write since it was rewritten.
func TestRewriteFiles_LeavesNothingOnTheDisk(t *testing.T) {
	t.Parallel()

	own, on := ownServer(t)
	s := newEnv(t, on)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Delivered)
	name := testDraft("").Recipient.Name
	require(t, onDisk(t, own.Dir, name), "the test looks in the wrong files")
	must(t, s.Erasure.Erase(t.Context(), one(o.ID), false, silent))
	must(t, s.Erasure.RewriteFiles(t.Context()))
	testserver.Await(t, "the files from before are removed", func() bool { return !onDisk(t, own.Dir, name) })
	get(own.Command(t.Context(), "CONFIG", "SET", "appendonly", "no"))(t)
	must(t, s.Erasure.RewriteFiles(t.Context()))
}

func onDisk(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	files := get(filepath.Glob(filepath.Join(dir, "*", "*")))(t)
	for _, file := range files {
		content, err := os.ReadFile(file) // Redis may remove it meanwhile
		found = found || err == nil && strings.Contains(string(content), text)
	}
	return found
}
