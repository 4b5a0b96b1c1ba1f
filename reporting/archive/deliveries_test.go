package archive

import (
	"slices"
	"testing"
	"time"
)

// Of each set the highest version counts, and of two processes' rows with one version the one that got further.
func TestDeliverySets_TheLatestRowCounts(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	at := noon.Add(123 * time.Millisecond).UTC()

	pending := DeliverySet{Target: "erp", Name: "a", Version: 1, ChangedAt: at, DueAt: at}
	delivered := pending
	delivered.Version, delivered.DeliveredAt, delivered.Folder, delivered.Manifest, delivered.Report = 2, at, "a-2", "x", `{"id":"a-2@erp"}`
	failed := pending
	failed.Version, failed.ChangedAt, failed.Error = 2, at.Add(time.Hour), "no room"
	other := pending
	other.Target = "archive"
	noError(t, a.RecordDeliverySets(t.Context(), []DeliverySet{delivered, other}))
	noError(t, a.RecordDeliverySets(t.Context(), []DeliverySet{pending}))
	noError(t, a.RecordDeliverySets(t.Context(), []DeliverySet{failed}))

	listed := delivered
	listed.Report = ""
	all, err := a.DeliverySets(t.Context())
	noError(t, err)
	if !slices.EqualFunc(all, []DeliverySet{other, listed}, sameSet) {
		t.Errorf("listed: %+v", all)
	}

	found, err := a.DeliverySet(t.Context(), "erp", "a")
	noError(t, err)
	if found == nil || !sameSet(*found, delivered) {
		t.Errorf("found: %+v", found)
	}
	found, err = a.DeliverySet(t.Context(), "erp", "b")
	if found != nil || err != nil {
		t.Errorf("found: %+v, %v", found, err)
	}

	// Whoever can write to ClickHouse can make up any number of sets, and must not fill the memory of who reads them.
	noError(t, a.exec(t.Context(), "INSERT INTO delivery_sets (target, name) SELECT 'made up', toString(number) FROM numbers(99998)"))
	all, err = a.DeliverySets(t.Context())
	if len(all) != 100_000 || err != nil {
		t.Errorf("%d of 100,000 sets: %v", len(all), err)
	}

	noError(t, a.exec(t.Context(), "INSERT INTO delivery_sets (target, name) VALUES ('made up', 'one more')"))
	all, err = a.DeliverySets(t.Context())
	if len(all) > 0 || err == nil {
		t.Errorf("%d of 100,001 sets: %v", len(all), err)
	}
}

func sameSet(a, b DeliverySet) bool {
	for _, s := range []*DeliverySet{&a, &b} {
		for _, at := range []*time.Time{&s.ChangedAt, &s.DueAt, &s.DeliveredAt, &s.AnnouncedAt} {
			*at = at.UTC()
		}
	}
	return a == b
}
