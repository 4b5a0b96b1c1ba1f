// Package tracking serves the page behind an order's trackingUrl (spec, "Order
// (creation response)"; design section 9): how far the delivery is, who brings
// it, when it is expected, and roughly where it is.
//
// It owns the paths below /track/: the page, the fragment with which it renews
// itself, and its own stylesheet, script and icon. It speaks Turkish and English
// by the browser's language and works without a script.
//
// The token in the path is the only key; nobody signs in. It is judged by its
// MAC before anything is read, so guessing costs Redis nothing. Whoever has the
// link may be somebody it was forwarded to. So the page refuses everything that
// is the recipient's: name, phone, address, door, notes, amounts, payment. Of
// the drop-off it knows only the square of about 100 m in which it lies, and
// the courier's position is as coarse, because a courier who stands at the door
// would tell it otherwise; when the order has ended there is no map at all. A
// token is a secret, so it is in no log.
//
// It refuses to change anything, and to answer for orders that are over: see
// linkLifetime.
package tracking
