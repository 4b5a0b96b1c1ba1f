package admin

import (
	"fmt"
	"math"
	"net/url"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

type limitRow struct {
	Path string // the API's name: limits.orders.sustained
	Of   string // the requests that count; empty: as in the row before
	Kind string // sustained, burst, refill
	// Count and Seconds are the inputs' values; empty: there is no such window.
	Count, Seconds string
	// Shown is the limit as the form notes it, to tell later what was changed.
	Shown string
	// Default is the limit of a new account; a zero Count: none.
	Default delivery.Window
	Use     ledger.WindowUse
}

var limitedRequests = map[ledger.Endpoint]string{
	ledger.EndpointOrders: "POST /orders", ledger.EndpointOrderStatus: "GET /orders/{orderId}", ledger.EndpointCancel: "POST /orders/{orderId}/cancel",
	ledger.EndpointStores: "PUT /stores and /webhook", ledger.EndpointToken: "POST /token",
}

func endpointLimits(l delivery.Limits) []delivery.EndpointLimit {
	return []delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}
}

// limitRows are the sustained window and the burst of each endpoint. uses is in the
// ledger's order and may be nil.
func limitRows(limits delivery.Limits, uses []ledger.EndpointUse) (rows []limitRow) {
	defaults := endpointLimits(delivery.DefaultLimits())
	for i, limit := range endpointLimits(limits) {
		endpoint := ledger.Endpoint(i)
		use := ledger.EndpointUse{}
		if i < len(uses) {
			use = uses[i]
		}
		path := "limits." + endpoint.String()
		sustained := limitRowOf(path+".sustained", "sustained", limit.Sustained, defaults[i].Sustained, use.Sustained)
		sustained.Of = limitedRequests[endpoint]
		if endpoint == ledger.EndpointStores {
			sustained.Kind = "refill"
		}
		rows = append(rows, sustained, limitRowOf(path+".burst", "burst", limit.Burst, defaults[i].Burst, use.Burst))
	}
	return rows
}

func limitRowOf(path, kind string, limit, preset delivery.Window, use ledger.WindowUse) limitRow {
	row := limitRow{Path: path, Kind: kind, Default: preset, Use: use, Count: inputOf(limit.Count), Seconds: inputOf(limit.Seconds)}
	row.Shown = windowNote(row.Count, row.Seconds)
	return row
}

func windowNote(count, seconds string) string {
	if count == "" && seconds == "" {
		return ""
	}
	return count + " in " + seconds + " s"
}

// keepTyped shows again the changed windows of a refused form.
func keepTyped(rows []limitRow, form url.Values) {
	for i := range rows {
		if row := &rows[i]; windowChanged(form, row.Path) {
			row.Count, row.Seconds, row.Shown = form.Get(row.Path+".count"), form.Get(row.Path+".seconds"), form.Get(row.Path+shownSuffix)
		}
	}
}

// windowChanged is changedIn for the two fields of a window, which have one note.
func windowChanged(form url.Values, path string) bool {
	held := windowNote(strings.TrimSpace(form.Get(path+".count")), strings.TrimSpace(form.Get(path+".seconds")))
	return form.Has(path+".count") && held != form.Get(path+shownSuffix)
}

// changedLimits are the changed windows as the API takes them. Emptied fields are sent
// as they are, for the API to refuse.
func changedLimits(form url.Values) map[string]map[string]map[string]any {
	changed := map[string]map[string]map[string]any{}
	for _, row := range limitRows(delivery.Limits{}, nil) {
		if !windowChanged(form, row.Path) {
			continue
		}
		endpoint, window := row.Endpoint(), row.Path[strings.LastIndex(row.Path, ".")+1:]
		if changed[endpoint] == nil {
			changed[endpoint] = map[string]map[string]any{}
		}
		changed[endpoint][window] = map[string]any{
			"count": number(form.Get(row.Path + ".count")), "seconds": number(form.Get(row.Path + ".seconds"))}
	}
	return changed
}

func (l limitRow) ID() string { return strings.ReplaceAll(l.Path, ".", "-") }

func (l limitRow) Endpoint() string { return strings.Split(l.Path, ".")[1] }

// Name is the row's for a screen reader: "orders, sustained".
func (l limitRow) Name() string {
	return strings.ReplaceAll(strings.TrimPrefix(l.Path, "limits."), ".", ", ")
}

// High is from where on a meter warns: four fifths of the limit.
func (l limitRow) High() int { return int(math.Ceil(0.8 * float64(l.Use.Window.Count))) }

// inputOf is the value of an input for a number; empty for 0, which is none.
func inputOf(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
