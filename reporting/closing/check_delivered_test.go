package closing

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

// night runs the nightly work, in which one of twoMonths has its turn, and returns what was logged and how many
// findings are noted of all months.
func (e *env) night(targets ...*deliver.Target) (logged string, findings int, completed bool) {
	e.T.Helper()
	e.clock = e.clock.Add(24 * time.Hour)
	var log bytes.Buffer
	e.books.log = slog.New(slog.NewTextHandler(&log, nil))

	NewNightly(e.books, targets, prometheus.NewRegistry())(e.T.Context())

	_, r, err := e.books.readReview(e.T.Context())
	testenv.Must(e.T, err)
	findings, _ = summarize(e.log(), r, e.clock)

	return log.String(), findings, r.Completed.Equal(e.clock)
}

// wantNight wants these parts of sentences in the log of a night, each in a line of its own, and as many findings.
func (e *env) wantNight(what string, targets []*deliver.Target, wanted ...string) {
	e.T.Helper()
	logged, findings, completed := e.night(targets...)
	wantContains(e.T, what, logged, wanted...)
	if findings != len(wanted) || strings.Count(logged, "level=ERROR") != len(wanted) || !completed {
		e.T.Errorf("%s: %d findings, completed: %v\n%s", what, findings, completed, logged)
	}
}

// What is noted as delivered and is not at the target, or not any more, is found by the night in which its
// month has its turn, and is shown until it is there.
func TestNightly_NamesWhatTargetsDoNotHave(t *testing.T) {
	e, _ := twoMonths(t)
	b, other, r := newBucket(t, "erp"), newBucket(t, "other"), &receiver{}
	targets := []*deliver.Target{b.target, other.target}
	e.newDeliverer(r, b).mustDeliver(t)
	log := e.log().Entries

	e.wantNight("October as it is", targets)
	e.wantNight("November as it is", targets)

	const missing = "2025-10-closing-000002/order-ledger.csv"
	content := b.files(t)[missing]
	testenv.Must(t, b.client.RemoveObject(t.Context(), "books", "finance/"+missing, minio.RemoveObjectOptions{}))
	e.wantNight("a missing file of October", targets, missing+" is missing at erp")
	b.put(t, missing, content)
	e.wantNight("the file again", targets)

	// Whoever can write to ClickHouse notes that the other target has October.
	forged := archive.DeliverySet{
		Target: "other", Name: log[1].folder(), Version: 1, ChangedAt: e.clock, DueAt: e.clock, Folder: log[1].folder(),
		Manifest: log[1].Seal, DeliveredAt: e.clock, AnnouncedAt: e.clock,
	}

	testenv.Must(t, e.Archive.RecordDeliverySets(t.Context(), []archive.DeliverySet{forged}))
	var want []string
	for _, f := range []string{"order-ledger.csv", betweenFile, manifestFile} {
		want = append(want, "2025-10-closing-000002/"+f+" is missing at other")
	}

	e.wantNight("a row that was forged", targets, want...)
	e.lose("delivery_sets", "target = 'other'")
	e.wantNight("without the row", targets)

	// A row of which the log has no entry is found, whichever month has its turn.
	forged.Name = "2024-01-closing-000009"
	testenv.Must(t, e.Archive.RecordDeliverySets(t.Context(), []archive.DeliverySet{forged}))
	for range 3 { // it is not counted with each month that has its turn
		e.wantNight("a row without an entry", targets, "delivery_sets has a row for 2024-01-closing-000009 at other")
	}
}

// A target that is away is logged, and keeps nothing else from being verified; nothing is booked until it answers.
// What was found there earlier stays shown.
func TestNightly_ATargetThatIsAwayHoldsUpNothing(t *testing.T) {
	e, _ := twoMonths(t)
	away, b, r := newBucket(t, "away"), newBucket(t, "erp"), &receiver{}
	targets := []*deliver.Target{away.target, b.target}
	e.newDeliverer(r, away, b).mustDeliver(t)
	away.put(t, "2025-10-closing-000002/order-ledger.csv", "other")
	e.wantNight("before", targets, "order-ledger.csv at away")

	away.isAway.Store(true)
	b.put(t, "2025-11-closing-000004/order-ledger.csv", "other")
	logged, findings, completed := e.night(targets...) // November has its turn
	wantContains(t, "the log", logged, "deliver to away: ", "2025-11-closing-000004/order-ledger.csv at erp")
	if findings != 2 || completed {
		t.Errorf("%d findings, completed: %v\n%s", findings, completed, logged)
	}

	_, noted, err := e.books.readReview(t.Context())
	testenv.Must(t, err)
	november := noted.Verified["2025-11"]
	if !november.Tried.Equal(e.clock) || november.Findings != 1 {
		t.Errorf("of November is noted %+v", november)
	}

	away.isAway.Store(false)
	_, findings, completed = e.night(targets...)
	if findings != 2 || !completed {
		t.Errorf("%d findings when it is back, completed: %v", findings, completed)
	}
}

// What is decided and delivered while targets are compared is no finding.
func TestCheckDelivered_WhatIsDeliveredMeanwhileIsNoFinding(t *testing.T) {
	e, orders := twoMonths(t)
	b, r := newBucket(t, "erp"), &receiver{}
	other := e.newBooks()
	d := NewDeliverer(other, DelivererSettings{Targets: []*deliver.Target{b.target}, Announce: r.announce, Registry: prometheus.NewRegistry()})
	orders[0].Collection.Minor++
	e.store(orders[0])

	isBooked := false
	b.refuse = func(string) bool {
		if !isBooked {
			isBooked = true
			_, left, err := correct(t.Context(), other, "ece", "", orders[0].ID)
			if err != nil || len(left) > 0 {
				t.Errorf("%v, left %v", err, left)
			}
			if err := d.once(t.Context()); err != nil {
				t.Error(err)
			}
		}

		return false
	}

	wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	testenv.Must(t, err)
	if len(wrong) > 0 {
		t.Error(wrong)
	}

	wantSets(t, b, "2025-10-closing-000002", "2025-11-closing-000004", "2025-12-correction-000005")
}

// A folder at a target that the log does not have says that both databases were restored to an older state. What would
// be booked then contradicts what was delivered.
func TestNightly_BooksNothingBesideFoldersThatTheLogLacks(t *testing.T) {
	e, october := newEnv(t), month("2025-10")
	failed := e.order(october.Add(12*time.Hour), delivery.Failed, 900)
	e.store(failed)
	e.close(october)
	e.reportLate(&failed, failed.EndedAt.Add(time.Hour))
	b := newBucket(t, "erp")
	const folder = "2025-11-correction-000003"
	b.put(t, folder+"/"+manifestFile, `{"sequence":3}`)

	logged, findings, completed := e.night(b.target)
	wantContains(t, "the log", logged, folder+" at erp was delivered", "nothing is booked without a person")
	if len(e.log().Entries) != 2 || findings != 1 || completed {
		t.Errorf("%d entries, %d findings, completed: %v", len(e.log().Entries), findings, completed)
	}

	testenv.Must(t, b.client.RemoveObject(t.Context(), "books", "finance/"+folder+"/"+manifestFile, minio.RemoveObjectOptions{}))
	_, findings, completed = e.night(b.target)
	if len(e.log().Entries) != 3 || findings != 0 || !completed {
		t.Errorf("without the folder: %d entries, %d findings, completed: %v", len(e.log().Entries), findings, completed)
	}
}
