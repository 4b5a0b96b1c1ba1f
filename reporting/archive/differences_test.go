package archive

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

// The log of many years has thousands of batches, and a look names as many orders as it may.
func TestDiffering_NamesManyBatchesAndPlaces(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	batches := make([]uuid.UUID, 10_000)
	for i := range batches {
		batches[i] = uuid.New()
	}

	places := make([]Place, MaxPlaces)
	for i := range places {
		places[i] = Place{Account: delivery.NewAccountID(), Day: BusinessDay(time.Now()), Order: delivery.OrderID(uuid.New())}
	}

	differing, err := a.Differing(t.Context(), batches, PlacesPart(places), 10)
	noError(t, err)
	late, err := a.UnbookedLate(t.Context(), batches, PlacesPart(places), 10)
	noError(t, err)

	if len(differing)+len(late) > 0 {
		t.Errorf("of an empty database: %+v %+v", differing, late)
	}
}
