package ledger

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// FuzzParseJobCursor: whatever a fleet sends as a cursor is one that leads to
// itself again, or is refused.
func FuzzParseJobCursor(f *testing.F) {
	for _, seed := range []string{"", "3.1700000000000.00ff", "-1.0.00", "1.2", "1.2.zz", "99999999999999999999.0.", "+1.-5.AB", "1.2.3.4"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseJobCursor(text)
		if err != nil {
			check(t, delivery.CodeOf(err) == delivery.CodeValidationFailed, "%q: %v", text, err)
			return
		}
		if again, err := parseJobCursor(c.String()); err != nil || again != c || c.partition < 0 {
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
	f.Add(string(encodeUpdate(update)))
	f.Add(string(appendStore(nil, store, 7)))
	f.Add(string(encodeNotice(&Notice{Type: delivery.StoreActivated, OccurredAt: at, Data: []byte("{}")})))
	f.Add("ok\n" + strings.Repeat("\x00", quotaSize) + "payload")
	f.Add(string(rune(eventOrder)) + strings.Repeat("x", 22))
	f.Add(strings.Repeat("\xff", 40))
	f.Fuzz(func(t *testing.T, record string) {
		if u, err := decodeUpdate(record); err == nil && !isNaN(u.Location.Point) {
			again, err := decodeUpdate(string(encodeUpdate(u)))
			sameRecord(t, u, again, err)
		}
		if s, err := decodeStore(record); err == nil && !isNaN(s.Point) {
			again, err := decodeStore(string(appendStore(nil, s, s.Revision)))
			sameRecord(t, s, again, err)
		}
		if n, err := decodeNotice(record); err == nil {
			again, err := decodeNotice(string(encodeNotice(n)))
			sameRecord(t, n, again, err)
		}
		if c, err := parseCounted(record); err == nil && !strings.HasPrefix(record, c.name) {
			t.Errorf("%q is %+v", record, c)
		}
		if _, err := decodeFleet(delivery.FleetID{1}, record); err != nil && err.Error() == "" {
			t.Error("refused without a word")
		}
	})
}

// isNaN is true for a place that is not even equal to itself.
func isNaN(p delivery.Point) bool { return math.IsNaN(p.Latitude) || math.IsNaN(p.Longitude) }

func sameRecord(t *testing.T, first, again any, err error) {
	t.Helper()
	check(t, err == nil && reflect.DeepEqual(first, again), "%+v became %+v, %v", first, again, err)
}
