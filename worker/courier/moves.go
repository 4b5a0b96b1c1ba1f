package courier

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode"

	"vendorapi/internal/delivery"
)

// Triggers at the start of packageNote (design section 9). Those about the
// fleet are the gateway's, those about webhooks the webhook role's.
const (
	triggerNoCourier = "SIM:NO_COURIER"
	triggerFail      = "SIM:FAIL="
	triggerHold      = "SIM:HOLD="
)

// script is what a packageNote asks of the sandbox courier; zero: deliver.
type script struct {
	noCourier bool
	fail      delivery.FailureReason
	hold      delivery.Status
}

// readScript reads the trigger at the start of a note, up to the first white
// space. What is no trigger, or names no reason or status, is a note like any
// other.
func readScript(note string) script {
	word := note
	if end := strings.IndexFunc(note, unicode.IsSpace); end >= 0 {
		word = note[:end]
	}
	if word == triggerNoCourier {
		return script{noCourier: true}
	}
	if name, ok := strings.CutPrefix(word, triggerFail); ok {
		if reason, err := delivery.ParseFailureReason(name); err == nil {
			return script{fail: reason}
		}
	}
	if name, ok := strings.CutPrefix(word, triggerHold); ok {
		if status, err := delivery.ParseStatus(name); err == nil {
			return script{hold: status}
		}
	}
	return script{}
}

// nextMove is what the courier reports of the order next; false when it is not
// time yet, when an earlier report still waits to be decided, or when the
// order's script says to stop.
func nextMove(o *delivery.Order, now time.Time, step time.Duration) (u delivery.Update, moves bool) {
	s := readScript(o.PackageNote)
	switch {
	case o.Status.Terminal(), o.Reported > o.Status, now.Sub(o.UpdatedAt()) < step:
		return u, false
	case s.noCourier && o.Status == delivery.Searching, s.hold == o.Status:
		return u, false
	}
	u = delivery.Update{Order: o.ID, Fleet: o.Fleet.ID, Kind: delivery.KindStatus, At: now}
	switch {
	case s.fail != "" && s.fail.LegalFrom(o.Status):
		u.Status, u.Failure = delivery.Failed, s.fail
		return u, true
	case o.Status == delivery.Searching:
		u.Kind, u.Courier = delivery.KindAccept, person(o.ID)
	}
	u.Status = o.Status + 1
	u.ETA = now.Add(time.Duration(delivery.Delivered-u.Status) * step)
	return u, true
}

// progress is how far from the store to the drop-off the courier is when it
// reaches a status, 0 to 1.
func progress(s delivery.Status) float64 {
	switch s {
	case delivery.PickingUp:
		return 0.05
	case delivery.PickedUp:
		return 0.1
	case delivery.Delivering:
		return 0.5
	case delivery.Delivered:
		return 1
	default:
		return 0
	}
}

// between is the point that far along the straight way.
func between(from, to delivery.Point, part float64) delivery.Point {
	return delivery.Point{
		Latitude:  from.Latitude + (to.Latitude-from.Latitude)*part,
		Longitude: from.Longitude + (to.Longitude-from.Longitude)*part,
	}
}

// The people of the sandbox.
var (
	firstNames = [...]string{"Mehmet", "Ayşe", "Mustafa", "Fatma", "Emre", "Zeynep", "Hüseyin", "Elif", "İbrahim", "Gül", "Oğuz", "Şeyma"}
	surnames   = [...]string{"Yılmaz", "Kaya", "Demir", "Çelik", "Şahin", "Yıldız", "Öztürk", "Aydın", "Özdemir", "Arslan", "Doğan", "Işık"}
)

// person is the courier of an order: always the same one, so that a second
// replica's accept is a repetition and not another courier.
func person(id delivery.OrderID) delivery.Courier {
	digest := id.Digest()
	n := binary.BigEndian.Uint64(digest[:8])
	names := n % uint64(len(firstNames)*len(surnames))
	phone := []byte("5300000000")
	for i, rest := len(phone)-1, n/1024; i > 2; i, rest = i-1, rest/10 {
		phone[i] = '0' + byte(rest%10)
	}
	return delivery.Courier{
		Name:        firstNames[names%uint64(len(firstNames))] + " " + surnames[names/uint64(len(firstNames))],
		Phone:       string(phone),
		VehicleType: "Motorcycle",
	}
}
