package closing

import (
	"context"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
)

func (e *env) correctChanged() Outcome {
	e.T.Helper()
	result, err := e.books.CorrectChanged(e.T.Context())
	testenv.Must(e.T, err)
	return result
}

// unbooked is what the page shows.
func (e *env) unbooked() (explained int, waiting []Unexplained) {
	e.T.Helper()
	explained, waiting, err := e.books.Unbooked(e.T.Context())
	testenv.Must(e.T, err)
	return explained, waiting
}

// The nightly look reads what was stored since the last one, and remembers what waits for a person.
func TestCorrectChanged_FindsWhatWasStored(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	at := october.Add(12 * time.Hour)
	changed, failed := e.order(at, delivery.Delivered, 100), e.order(at, delivery.Failed, 200)
	removed := e.order(at, delivery.Delivered, 300)
	e.store(changed, failed, removed)
	e.close(october)
	if found := e.correctChanged(); len(found.Booked)+len(found.Waiting) > 0 {
		t.Fatalf("nothing has changed: %+v", found)
	}

	changed.Collection.Minor++
	e.store(changed)
	e.reportLate(&failed, failed.EndedAt.Add(time.Hour))
	now, err := e.Archive.Now(t.Context())
	testenv.Must(t, err)
	testenv.Must(t, e.books.updateReview(t.Context(), func(r *review) { r.ComparedUntil = now })) // what is stored is seen minutes later at most
	if explained, waiting := e.unbooked(); explained != 1 || len(waiting) != 1 {
		t.Errorf("%d are to be booked, and wait for a person: %+v", explained, waiting)
	}

	found := e.correctChanged()
	if len(found.Booked) != 1 || found.Booked[0].Cause != CauseLate || len(found.Waiting) != 1 || found.Waiting[0].Order != changed.ID {
		t.Errorf("a night later: %+v", found)
	}

	// Whatever was stored long ago waits until a person decides.
	testenv.Must(t, e.books.updateReview(t.Context(), func(r *review) { r.ComparedUntil = r.ComparedUntil.Add(time.Hour) }))
	if _, waiting := e.unbooked(); len(waiting) != 1 {
		t.Errorf("what waits is forgotten: %+v", waiting)
	}

	booked, err := e.books.Book(t.Context(), "ece", "seen", []delivery.OrderID{changed.ID})
	testenv.Must(t, err)
	if _, waiting := e.unbooked(); len(booked.Booked) != 1 || len(waiting) != 0 {
		t.Errorf("booked by a person: %+v, left %+v", booked, waiting)
	}

	testenv.Must(t, e.books.updateReview(t.Context(), func(r *review) { r.ComparedUntil = r.ComparedUntil.Add(-time.Hour) }))

	// A row that was removed was not stored: comparing the whole month finds it.
	e.ClickHouse.Exec(t, "DELETE FROM "+e.Database+".orders WHERE order_id = '"+removed.ID.String()+"' SETTINGS lightweight_deletes_sync = 2")
	if found := e.correctChanged(); len(found.Waiting) > 0 {
		t.Errorf("it was found in what was stored: %+v", found)
	}

	whole, err := e.books.CorrectMonth(t.Context(), october)
	testenv.Must(t, err)
	if _, waiting := e.unbooked(); len(whole.Waiting) != 1 || whole.Waiting[0].Order != removed.ID || len(waiting) != 1 {
		t.Errorf("the whole month: %+v, left %+v", whole, waiting)
	}

	// A clock that was ahead hides nothing that is stored later.
	testenv.Must(t, e.books.updateReview(t.Context(), func(r *review) {
		r.ComparedUntil = time.Now().AddDate(1, 0, 0)
		r.Waiting = nil
	}))

	changed.Collection.Minor++
	e.store(changed)
	if found := e.correctChanged(); len(found.Waiting) != 2 { // with the one that was removed
		t.Errorf("after a clock that was ahead: %+v", found)
	}

	// What was taken out of the books is not taken out once more when it comes back.
	book := func() {
		t.Helper()
		_, err := e.books.Book(t.Context(), "ece", "seen", []delivery.OrderID{removed.ID})
		testenv.Must(t, err)
	}

	book()
	e.store(removed)
	book()
	signs := e.ClickHouse.Exec(t, "SELECT groupArray(sign) FROM (SELECT sign FROM "+e.Database+".closed_orders WHERE order_id = '"+removed.ID.String()+"' ORDER BY entry, sign DESC)")
	if strings.TrimSpace(signs) != "[1,-1,1]" {
		t.Errorf("rows of an order that was removed and came back: %s", signs)
	}
}

// What changes while a month is being closed is compared with what was frozen.
func TestCorrectChanged_LooksAtWhatChangedWhileAMonthWasClosed(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 100))
	e.close(october)
	november := october.Next()
	o := e.order(november.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	now := func() time.Time {
		t.Helper()
		now, err := e.Archive.Now(t.Context())
		testenv.Must(t, err)
		return now
	}

	var changed time.Time
	e.books.step = func(name string) {
		if name == "added up" { // what was frozen has been read back
			e.books.step = func(string) {}
			changed = now()
			o.Collection.Minor++
			e.store(o)
			ended := now()
			testenv.Must(t, e.books.updateReview(t.Context(), func(r *review) { r.ComparedUntil = ended })) // another look
		}
	}

	e.clock = november.Next().Add(Grace + time.Hour)
	testenv.Must(t, decide(t.Context(), e.books, KindHold, november, "ayse", "seen"))
	testenv.Must(t, decide(t.Context(), e.books, KindClose, november, "ece", ""))

	_, r, err := e.books.readReview(t.Context())
	testenv.Must(t, err)
	if r.ComparedUntil.After(changed) {
		t.Errorf("what was stored since %s is to be compared, the order was changed after %s", r.ComparedUntil, changed)
	}

	found := e.correctChanged()
	if len(found.Waiting) != 1 || found.Waiting[0].Order != o.ID {
		t.Errorf("%+v", found)
	}
}

// A late delivery that only ClickHouse knows, and a newer version of an order that Redis cannot hold any
// more, are not booked without a person.
func TestCorrect_WhatRedisCannotConfirmWaitsForAPerson(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	failed := e.order(october.Add(12*time.Hour), delivery.Failed, 200)
	e.store(failed)
	held := e.Vendor.Order("", october.Add(13*time.Hour))
	e.Move(held, delivery.Delivered, held.CreatedAt.Add(time.Hour))
	confirmed := archive.OrderOf(e.Read(held.ID), nil)
	testenv.Must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Events: archive.EventsOf(e.Read(held.ID))}))
	e.close(october)

	e.storeLate(&failed, failed.EndedAt.Add(time.Hour))
	e.store(confirmed)
	found := e.correctChanged()

	if len(found.Booked) != 0 || len(found.Waiting) != 2 {
		t.Errorf("%+v", found)
	}

	booked, err := e.books.Book(t.Context(), "ece", "seen", []delivery.OrderID{failed.ID, confirmed.ID})
	testenv.Must(t, err)
	if len(booked.Booked) != 2 || len(booked.Waiting) != 0 {
		t.Errorf("booked by a person: %+v", booked)
	}
}

// The first closing takes the months before along, one by one; what is interrupted goes on.
func TestClose_TheFirstOneGoesMonthByMonth(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	for m := month("2025-07"); !m.After(october.Time); m = m.Next() {
		e.store(e.order(m.Add(12*time.Hour), delivery.Delivered, 100))
	}

	e.clock = october.Next().Add(Grace + time.Hour)
	testenv.Must(t, decide(t.Context(), e.books, KindHold, october, "ayse", "seen"))

	ctx, interrupt := context.WithCancel(t.Context())
	closed := 0
	e.books.step = func(name string) {
		if name == "stored" {
			closed++
		}
		if closed == 2 {
			interrupt()
		}
	}

	if err := decide(ctx, e.books, KindClose, october, "ece", ""); err == nil {
		t.Fatal("it was not interrupted")
	}

	e.books.step = func(string) {}
	if l := e.log(); l.Last.Month != month("2025-08") || l.Held == nil {
		t.Fatalf("closed up to %s, held %v", l.Last.Month, l.Held)
	}

	testenv.Must(t, decide(t.Context(), e.books, KindClose, october, "ece", ""))

	l := e.log()
	if l.Last.Month != october || l.Held != nil || len(l.Entries) != 5 {
		t.Errorf("closed up to %s, held %v, %d entries", l.Last.Month, l.Held, len(l.Entries))
	}
	if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 || v.Closings != 4 {
		t.Errorf("%+v", v)
	}
}
