package courier

import (
	"encoding/binary"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// nextMove is what the courier reports of the order next; false when it is not
// time yet, when an earlier report still waits to be decided, or when the
// order's trigger says to stop.
func nextMove(o *delivery.Order, now time.Time, step time.Duration) (u delivery.Update, moves bool) {
	// An unknown one, which the gateway once accepted, is a note like any other.
	trigger, _ := delivery.ParseTrigger(o.PackageNote)
	switch {
	case o.Status.Terminal(), o.Reported > o.Status, now.Sub(o.UpdatedAt()) < step:
		return u, false
	case trigger.Kind == delivery.TriggerNoCourier && o.Status == delivery.Searching, trigger.Hold == o.Status:
		return u, false
	}
	u = delivery.Update{Order: o.ID, Fleet: o.Fleet.ID, Kind: delivery.KindStatus, At: now}
	switch {
	case trigger.Fail != "" && trigger.Fail.LegalFrom(o.Status):
		u.Status, u.Failure = delivery.Failed, trigger.Fail
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
var progress = map[delivery.Status]float64{
	delivery.PickingUp: 0.05, delivery.PickedUp: 0.1, delivery.Delivering: 0.5, delivery.Delivered: 1,
}

// between is the point that far along the straight way.
func between(from, to delivery.Point, part float64) delivery.Point {
	return delivery.Point{
		Latitude:  from.Latitude + (to.Latitude-from.Latitude)*part,
		Longitude: from.Longitude + (to.Longitude-from.Longitude)*part,
	}
}

var (
	firstNames = [...]string{"Mehmet", "Ayşe", "Mustafa", "Fatma", "Emre", "Zeynep", "Hüseyin", "Elif", "İbrahim", "Gül", "Oğuz", "Şeyma"}
	surnames   = [...]string{"Yılmaz", "Kaya", "Demir", "Çelik", "Şahin", "Yıldız", "Öztürk", "Aydın", "Özdemir", "Arslan", "Doğan", "Işık"}
)

// person is the courier of an order: always the same one, so that a second
// replica's accept is a repetition and not another courier.
func person(id delivery.OrderID) delivery.Courier {
	digest := id.Digest()
	n := binary.BigEndian.Uint64(digest[:8])
	return delivery.Courier{
		Name:        firstNames[n%12] + " " + surnames[n/12%12],
		Phone:       fmt.Sprintf("530%07d", n/1024%1e7),
		VehicleType: "Motorcycle",
	}
}
