package dashboard

import (
	"net/http"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth/authenv"
)

//rule:fleets-and-operators/on-a-status-update-the
func TestRefusedUpdates_TellWhatWasRefusedAndWhy(t *testing.T) {
	e := newEnv(t)
	e.get("/refused-updates").Says("No update has been refused")
	now := time.Now()
	late := e.Vendor.Order("", now)
	e.Change(late.ID, delivery.Change{Status: delivery.Failed, At: now, Failure: delivery.TimedOut})
	e.Reach(late, delivery.Delivered, now)
	e.Decide()
	illegal := e.Vendor.Order("", now)
	e.Fail(illegal, delivery.CustomerRefused, now)
	e.Decide()
	a := e.get("/refused-updates")
	e.finds(a, illegal.ID, late.ID)
	a.Says("Failed, CustomerRefused", "The order's status does not allow it.", "late delivery Delivered was reported after the order had ended otherwise",
		"Hızlı Kurye", "Searching", "Test").Hides("Exceptions")
	// An id tells the day in UTC, of which three hours are the next day's here.
	day := time.Unix(int64(late.ID.Day())*24*60*60, 0).UTC()
	e.client.Get("/refused-updates", authenv.As("both")).Links("/payments/exceptions?account=" + e.Vendor.Account.String() +
		"&from=" + day.Format(time.DateOnly) + "&to=" + day.AddDate(0, 0, 1).Format(time.DateOnly))
	e.finds(e.get("/refused-updates?fleet="+e.Fleet.ID.String()), illegal.ID, late.ID)
	e.finds(e.get("/refused-updates?fleet=" + delivery.NewFleetID().String())).Says("No update of this fleet has been refused")
	e.client.Get("/refused-updates?fleet=x").Want(http.StatusUnprocessableEntity)
}

func TestRefusedUpdates_AreCutToWhatCanBeRead(t *testing.T) {
	e := newEnv(t)
	for range entriesShown + 1 {
		e.Fail(e.Vendor.Order("", time.Now()), delivery.CustomerRefused, time.Now())
	}
	e.Decide()
	e.get("/refused-updates").Says("Only the newest 100 are shown")
}

func TestTraces_WithoutRedisSaySo(t *testing.T) {
	e := newEnvToStop(t)
	e.Server.Stop()
	e.get("/refused-updates").Says("Cannot be read right now", "What was refused cannot be read right now")
	e.get("/dead-letters").Says("Cannot be read right now: dead letters", "Whether there are any cannot be read right now")
}

func TestDeadLetters_TellWhatTheyHeld(t *testing.T) {
	e := newEnv(t)
	e.get("/dead-letters").Says("There are none", "What they are, and what to do")
	e.EachKey("e", `redis.call('XADD', k, '*', 'e', '<script>alert(1)</script>', 'x', '\255\0')`)
	e.export()
	a := e.get("/dead-letters")
	a.Says("events", "Given up by export", "Partition 3", "unreadable", "<script>alert(1)</script>", "0xff00")
	e.get("/overview").Says("Dead letters 4", "4 dead letters lost").Links("/dead-letters")
}
