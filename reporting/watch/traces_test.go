package watch

import (
	"net/http"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

//rule:fleets-and-operators/on-a-status-update-the
func TestRefusedUpdates_TellWhatWasRefusedAndWhy(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.get("/refused-updates").says(t, "No update has been refused")
	now := time.Now()
	late := w.Vendor.Order("", now)
	w.Commit(late, delivery.Change{Status: delivery.Failed, At: now, Failure: delivery.TimedOut})
	w.Reach(late, delivery.Delivered, now)
	w.refuse(delivery.Failed, "late_delivery", true)
	illegal := w.Vendor.Order("", now)
	w.Fail(illegal, delivery.CustomerRefused, now)
	w.refuse(delivery.Searching, "illegal_move", false)
	a := w.get("/refused-updates")
	a.finds(t, illegal.ID, late.ID)
	a.says(t, "Failed, CustomerRefused", "The table of moves has no such move", "late delivery Delivered was reported after the order had been given up",
		"Hızlı Kurye", "Searching", "Test").hides(t, "Exceptions")
	// An id tells the day in UTC, of which three hours are the next day's here.
	day := time.Unix(int64(late.ID.Day())*24*60*60, 0).UTC()
	w.ask("GET", "both", "/refused-updates").links(t, "/payments/exceptions?from="+day.Format(time.DateOnly)+
		"&to="+day.AddDate(0, 0, 1).Format(time.DateOnly)+"&account="+w.Vendor.Account.String())
	w.get("/refused-updates?fleet="+w.Fleet.ID.String()).finds(t, illegal.ID, late.ID)
	w.get("/refused-updates?fleet="+delivery.NewFleetID().String()).finds(t).says(t, "No update of this fleet has been refused")
	if got := w.ask("GET", "operator", "/refused-updates?fleet=x"); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("%d", got.StatusCode)
	}
}

func TestRefusedUpdates_AreCutToWhatCanBeRead(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	o := w.Vendor.Order("", time.Now())
	for range shownTraces + 1 {
		w.Reach(o, delivery.Delivered, time.Now())
	}
	w.refuse(delivery.Searching, "illegal_move", false)
	w.get("/refused-updates").says(t, "Only the newest 100 are shown")
}

func TestTraces_WithoutRedisSaySo(t *testing.T) {
	t.Parallel()
	w := newWatchedToStop(t)
	w.Server.Stop()
	w.get("/refused-updates").says(t, "Cannot be read right now", "What was refused cannot be read right now")
	w.get("/dead-letters").says(t, "Cannot be read right now: dead letters", "Whether there are any cannot be read right now")
}

func TestDeadLetters_TellWhatTheyHeld(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.get("/dead-letters").says(t, "There are none", "What they are, and what to do")
	w.EachKey("e", `redis.call('XADD', k, '*', 'e', '<script>alert(1)</script>', 'x', '\\255\\0')`)
	w.export()
	a := w.get("/dead-letters")
	a.says(t, "events", "Given up by export", "Partition 3", "unreadable", "<script>alert(1)</script>", "0xff00")
	w.get("/overview").says(t, "Dead letters 4", "4 dead letters lost").links(t, "/dead-letters")
}
