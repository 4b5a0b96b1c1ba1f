package closing

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
)

// Whoever can write to ClickHouse records what was never delivered. Finance hears of closings and corrections what the
// log has, and of a day nothing that is about something else.
func TestAnnouncer_BelievesTheLogBeforeWhatWasRecorded(t *testing.T) {
	e, october := newEnv(t), month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(october)
	seal := e.log().Last.Seal
	b, r := newBucket(t, "erp"), &receiver{}
	forge := func(name string, report delivery.AvailableReport) {
		row := archive.DeliverySet{
			Target: "erp", Name: name, Version: 1, ChangedAt: e.clock, DueAt: e.clock, Folder: name, Manifest: seal,
			Report: formatReport(&report), DeliveredAt: e.clock,
		}
		testenv.Must(t, e.Archive.RecordDeliverySets(t.Context(), []archive.DeliverySet{row}))
	}

	forged := delivery.AvailableReport{
		ID: "2025-10-closing-000002@erp", Kind: delivery.ReportClosing, Month: "2025-10", At: e.clock,
		Seal:  delivery.Seal{Sequence: 2, SHA256: strings.Repeat("f", 64)},
		Files: []delivery.DeliveredFile{{Target: "erp", Name: "2025-10-closing-000002/manifest.json", SHA256: strings.Repeat("f", 64)}},
	}

	forge("2025-10-closing-000002", forged)
	ahead := forged
	ahead.ID = "2025-11-closing-000042@erp"
	forge("2025-11-closing-000042", ahead)
	forge("2025-11-20-daily", ahead)

	_ = e.newDeliverer(r, b).once(t.Context()) // which records the failures

	wantAnnounced(t, r, "2025-10-closing-000002@erp")
	if len(r.events) > 0 && (!strings.Contains(r.events[0], seal) || strings.Contains(r.events[0], strings.Repeat("f", 64))) {
		t.Errorf("announced is %s, sealed %s", r.events[0], seal)
	}
}
