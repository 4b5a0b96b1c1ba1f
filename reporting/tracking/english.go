package tracking

import "vendorapi/internal/delivery"

// A failure's words say what the holder of a link may know: that money was the
// matter is the recipient's.
var english = words{
	Language: "en", Page: "Your delivery",
	Statuses: map[delivery.Status]statusWords{
		delivery.Searching:  {"Order received", "Looking for a courier", "We are finding a courier for your order."},
		delivery.Assigned:   {"Courier found", "A courier has your order", "Your courier will set off for the restaurant in a moment."},
		delivery.PickingUp:  {"Courier heading to the restaurant", "Courier heading to the restaurant", "Your courier is on the way to pick up your order."},
		delivery.PickedUp:   {"Picked up", "Your order has been picked up", "Your courier has the package and is about to set off."},
		delivery.Delivering: {"On the way to you", "On the way to you", "Your courier is coming to you."},
		delivery.Delivered:  {"Delivered", "Delivered", "Your order has been handed over. Enjoy!"},
		delivery.Failed:     {"Could not be delivered", "We are sorry, your order could not be delivered", ""},
		delivery.Cancelled:  {"Cancelled", "Your order was cancelled", "The restaurant cancelled the delivery before pickup."},
	},
	Failures: map[delivery.FailureReason]string{
		delivery.NoCourierFound:      "No courier could be found in time.",
		delivery.TimedOut:            "The delivery could not be completed in time.",
		delivery.CourierIncident:     "The courier had a mishap on the way.",
		delivery.StoreClosed:         "The restaurant was closed.",
		delivery.PackageNotReady:     "The order was not ready for pickup.",
		delivery.PackageDamaged:      "The package was damaged on the way.",
		delivery.AddressNotFound:     "The address could not be found.",
		delivery.CustomerUnreachable: "Nobody could be reached at the address.",
		delivery.CustomerRefused:     "The order was not accepted at the door.",
		delivery.PaymentRefused:      "The order could not be handed over at the door.",
		delivery.OtherFailure:        "Something unexpected came up.",
	},
	Vehicles: map[string]string{"motorcycle": "Motorcycle", "bicycle": "Bicycle", "car": "Car", "van": "Van", "scooter": "Scooter", "walking": "On foot"},
	Timeline: "Steps", Courier: "Courier", Fleet: "Delivered by", Map: "Map",
	Store: "Restaurant", Dropoff: "Delivery area", CourierHere: "Courier",
	PickupAt: "Estimated pickup", DropoffAt: "Estimated arrival", DeliveredAt: "Handed over at", EndsAt: "Ended at",
	Soon: "any minute now", Minutes: "in about %d min", Hours: "in about %d h %d min", Late: "a little later than expected",
	Ahead:       "Your order will be ready at %s. A courier will come for it then.",
	CourierAway: "Your courier is about %s away.", CourierNear: "Your courier is close by.",
	CourierFromStore: "Your courier is about %s from the restaurant.", CourierAtStore: "Your courier is at the restaurant.",
	Position:    "Position: %s",
	NotKnownYet: "still to come", Reached: "done", Present: "now",
	AskStore: "Please ask the restaurant about your order.",
	Updated:  "Updated", ByItself: "This page renews itself.",
	Lost: "No connection. What you see may be out of date; trying again.", Reload: "Load the page again",
	Privacy: "Everyone with this link can see this page. Places are shown to about 100 m only.",
	Now:     "just now", SecondsAgo: "%d s ago", MinutesAgo: "%d min ago", HoursAgo: "%d h ago", Decimal: ".",
	Months:      [12]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"},
	Unknown:     notice{"We do not know this link", "Please check that the link is complete, exactly as it was sent to you."},
	Expired:     notice{"This link has expired", "A delivery can be followed until 24 hours after its end. Please ask the restaurant if you have a question."},
	Unavailable: notice{"Just a moment, please", "The page cannot be shown right now. It tries again by itself in a few seconds."},
	Broken:      notice{"Something went wrong", "The page cannot be shown. It tries again by itself in a few seconds."},
	ReadOnly:    notice{"This page can only be read", "Please open the link in your browser."},
}
