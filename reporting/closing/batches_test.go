package closing

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
)

// Somebody writes a batch, and a row that says that it was sealed, after the log was read. What is compared with
// closed months is what that log has.
func TestCorrect_BelievesNoBatchButThoseOfTheLogThatWasRead(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 25000)
	failed := e.order(october.Add(13*time.Hour), delivery.Failed, 900)
	e.store(o, failed)
	e.close(october)
	l := e.log()
	e.storeLate(&failed, failed.EndedAt.Add(time.Hour))

	forged := uuid.New()
	e.ClickHouse.Exec(t, fmt.Sprintf(`INSERT INTO %[1]s.closed_orders SELECT * REPLACE ('%[2]s' AS batch) FROM %[1]s.closed_orders WHERE order_id = '%[3]s'`,
		e.Database, forged, o.ID))
	e.ClickHouse.Exec(t, fmt.Sprintf(`INSERT INTO %[1]s.closed_orders SELECT * REPLACE ('%[2]s' AS batch, 0 AS sign, 0 AS entry,
	fromUnixTimestamp64Milli(%[4]d) AS reported_at) FROM %[1]s.closed_orders WHERE order_id = '%[3]s'`,
		e.Database, forged, failed.ID, failed.EndedAt.Add(time.Hour).UnixMilli()))
	unsigned := journal.Entry{Text: fmt.Sprintf(`{"sequence":3,"kind":"correction","month":"2025-11","batch":"%s"}`, forged)}
	testenv.Must(t, e.Archive.InsertEntry(t.Context(), &unsigned))
	if n := e.Ask("count() FROM " + e.Database + ".journal WHERE kind = 'correction' AND batch = '" + forged.String() + "'"); n != "1\n" {
		t.Fatalf("%s forged entries", n)
	}

	part := archive.MonthPart(october.Time, time.Time{})
	differing, err := e.Archive.Differing(t.Context(), l.batches(), part, 10)
	testenv.Must(t, err)
	late, err := e.Archive.UnbookedLate(t.Context(), l.batches(), part, 10)
	testenv.Must(t, err)
	if len(differing) > 0 || len(late) != 1 {
		t.Errorf("differing are %+v, unbooked are %+v", differing, late)
	}
}
