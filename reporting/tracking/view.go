package tracking

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/svgmap"
)

// view is an order as the page shows it: words and times, no more than whoever
// has the link may know. What a vendor or a fleet wrote is text.
type view struct {
	Status delivery.Status
	Ended  bool
	// Mood chooses the colours: "going", "good", "bad" or "off".
	Mood             string
	Headline, Detail string
	Advice           string // what to do about an order that did not arrive
	Done, Stages     int    // how far it is

	// Estimate is the next thing to wait for, Estimates are the others.
	Estimate  *estimate
	Estimates []estimate

	Store, Fleet                  string
	Courier, CourierMark, Vehicle string // empty: nobody yet
	Steps                         []step
	Map                           *svgmap.Map // nil: none
	CourierShown, CourierLost     bool
	Whereabouts, Position         string
	Updated                       moment
}

// moment is a time for people and for programs.
type moment struct{ Text, Machine string }

type estimate struct {
	Label string
	At    moment
	Left  string // how long until then; empty when it is over
}

// step is one line of the timeline. State is "done", "now" or "next".
type step struct {
	Name, State, Said string // Said is the state for who hears the page
	At                moment // zero: not reached
}

// newView composes the page of an order as of now. store may be nil.
func newView(w *words, o *delivery.Order, store *delivery.Store, now time.Time) *view {
	said := w.status(o.Status)
	v := &view{Status: o.Status, Ended: o.Status.Terminal(), Headline: said.Headline, Detail: said.Detail,
		Fleet: o.Fleet.Name, Mood: cmp.Or(moods[o.Status], "going"), Stages: int(delivery.Delivered), Done: int(o.Status),
		Updated: moment{now.In(delivery.Istanbul).Format(time.TimeOnly), delivery.FormatTime(now)}}
	if o.Status < delivery.PickingUp && o.ReadyAt.After(now.Add(time.Duration(o.Fleet.PickupMinutes)*time.Minute)) {
		v.Detail = fmt.Sprintf(w.Ahead, w.clock(o.ReadyAt, now))
	}
	if o.Status == delivery.Failed {
		v.Detail = w.failure(failureOf(o))
	}
	if o.Status > delivery.Delivered {
		v.Advice = w.AskStore
	}
	if store != nil {
		v.Store = store.Name
	}
	if !o.Courier.IsZero() {
		v.Courier = delivery.AbbreviateName(o.Courier.Name)
		if first, _ := utf8.DecodeRuneInString(v.Courier); first != utf8.RuneError {
			v.CourierMark = string(first) // in place of a picture
		}
		v.Vehicle = w.vehicle(o.Courier.VehicleType)
	}
	v.Steps = stepsOf(w, o, now)
	v.estimate(w, o, now)
	v.place(w, o, store, now)
	return v
}

// moods are those of ended orders; the others are going.
var moods = map[delivery.Status]string{delivery.Delivered: "good", delivery.Failed: "bad", delivery.Cancelled: "off"}

func failureOf(o *delivery.Order) delivery.FailureReason {
	if n := len(o.Changes); n > 0 {
		return o.Changes[n-1].Failure
	}
	return delivery.OtherFailure
}

func (w *words) moment(t, now time.Time) moment {
	return moment{w.clock(t, now), delivery.FormatTime(t)}
}

// stepsOf is the timeline: what was reached with its times, and of an order that
// goes on what is still to come.
func stepsOf(w *words, o *delivery.Order, now time.Time) []step {
	steps := []step{{Name: w.status(delivery.Searching).Step, At: w.moment(o.CreatedAt, now)}}
	for i := range o.Changes {
		steps = append(steps, step{Name: w.status(o.Changes[i].Status).Step, At: w.moment(o.Changes[i].At, now)})
	}
	for i := range steps {
		steps[i].State, steps[i].Said = "done", w.Reached
	}
	last := &steps[len(steps)-1]
	last.State, last.Said = "now", w.Present
	if o.Status.Terminal() {
		last.Said = w.Reached
		return steps
	}
	for s := o.Status + 1; s <= delivery.Delivered; s++ {
		steps = append(steps, step{Name: w.status(s).Step, State: "next", Said: w.NotKnownYet})
	}
	return steps
}

// estimate says what is expected when; of an ended order, when it ended.
func (v *view) estimate(w *words, o *delivery.Order, now time.Time) {
	if v.Ended {
		label := w.EndsAt
		if o.Status == delivery.Delivered {
			label = w.DeliveredAt
		}
		v.Estimate = &estimate{Label: label, At: w.moment(o.UpdatedAt(), now)}
		return
	}
	var all []estimate
	expect := func(label string, at time.Time) {
		all = append(all, estimate{label, w.moment(at, now), w.until(at.Sub(now))})
	}
	pickup := time.Time{}
	if o.Status < delivery.PickedUp {
		pickup = o.EstimatedPickup()
	}
	// A courier's own estimate that the pickup has overtaken is worth nothing.
	if at := o.EstimatedDropoff(o.Version); at.After(pickup) {
		expect(w.DropoffAt, at)
	}
	if !pickup.IsZero() {
		expect(w.PickupAt, pickup)
	}
	if len(all) > 0 {
		v.Estimate, v.Estimates = &all[0], all[1:]
	}
}

// Of the places on the map.
const (
	// coarse is the side of the squares, in degrees, to whose middle places are
	// moved: 111 m from south to north, 80 to 90 m from west to east. Rounding,
	// and not noise: however often somebody looks, the answer is the same.
	coarse = 0.001
	// coarseMetres is how far from there a place is at most, anywhere in Turkey.
	coarseMetres = 75
	// lostAfter is when a courier's position no longer says where the courier is.
	lostAfter = 3 * time.Minute
	// nearBy is what is not worth a figure, in metres, with places this coarse.
	nearBy = 150
)

// coarsely is the middle of the square in which a place lies.
func coarsely(p delivery.Point) delivery.Point {
	return delivery.Point{Latitude: snap(p.Latitude), Longitude: snap(p.Longitude)}
}

func snap(degrees float64) float64 { return math.Round(degrees/coarse) * coarse }

// place draws the map of an order that goes on. Drop-off and courier are
// coarse, the store's address is public.
func (v *view) place(w *words, o *delivery.Order, store *delivery.Store, now time.Time) {
	if v.Ended {
		return
	}
	dropoff := coarsely(o.Dropoff.Point)
	places := svgmap.Places{Dropoff: &dropoff, Blur: coarseMetres}
	if store != nil {
		places.Store = &store.Point
	}
	if !o.Location.IsZero() && o.Status >= delivery.Assigned {
		courier, age := coarsely(o.Location.Point), now.Sub(o.Location.At)
		places.Courier, places.Lost = &courier, age > lostAfter
		v.CourierShown, v.CourierLost = true, places.Lost
		v.Position = fmt.Sprintf(w.Position, w.age(age))
		v.Whereabouts = whereabouts(w, o.Status, courier, dropoff, store)
	}
	v.Map = svgmap.Surroundings(places, w.Map, describe(w, v))
}

// whereabouts says how far the courier is from where the courier goes next.
func whereabouts(w *words, s delivery.Status, courier, dropoff delivery.Point, store *delivery.Store) string {
	to, far, near := dropoff, w.CourierAway, w.CourierNear
	if s < delivery.PickedUp {
		if store == nil {
			return ""
		}
		to, far, near = store.Point, w.CourierFromStore, w.CourierAtStore
	}
	metres := svgmap.Distance(courier, to)
	if metres < nearBy {
		return near
	}
	return fmt.Sprintf(far, w.distance(metres))
}

// describe is the map for who does not see it.
func describe(w *words, v *view) string {
	shown := make([]string, 0, 3)
	if v.Store != "" {
		shown = append(shown, w.Store)
	}
	shown = append(shown, w.Dropoff)
	if v.CourierShown {
		shown = append(shown, w.CourierHere)
	}
	text := strings.Join(shown, ", ") + "."
	if v.CourierShown {
		text += " " + v.Whereabouts + " " + v.Position + "."
	}
	return text
}
