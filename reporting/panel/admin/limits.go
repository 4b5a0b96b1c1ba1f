package admin

import (
	"fmt"
	"math"
	"net/url"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// limitRow is one window of the limits' table.
type limitRow struct {
	Path string // the API's name: limits.orders.sustained
	ID   string // the same as an element's id
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

// limitedRequests says in words what an endpoint's limit counts.
var limitedRequests = map[string]string{
	"orders": "POST /orders", "orderStatus": "GET /orders/{orderId}", "cancel": "POST /orders/{orderId}/cancel",
	"stores": "PUT /stores and /webhook", "token": "POST /token",
}

// endpointLimits are the limits by the API's names, in the ledger's order.
func endpointLimits(l delivery.Limits) []delivery.EndpointLimit {
	return []delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}
}

// rowsOf are two rows for each endpoint: its sustained window and its burst. The
// use is in the ledger's order; a missing one shows no use.
func rowsOf(limits delivery.Limits, uses []ledger.EndpointUse) []limitRow {
	defaults := endpointLimits(delivery.DefaultLimits())
	var rows []limitRow
	for i, limit := range endpointLimits(limits) {
		endpoint := ledger.Endpoint(i)
		use := ledger.EndpointUse{}
		if i < len(uses) {
			use = uses[i]
		}
		path := "limits." + endpoint.String()
		sustained := rowOf(path+".sustained", "sustained", limit.Sustained, defaults[i].Sustained, use.Sustained)
		sustained.Of = limitedRequests[endpoint.String()]
		if endpoint == ledger.EndpointStores {
			sustained.Kind = "refill"
		}
		rows = append(rows, sustained, rowOf(path+".burst", "burst", limit.Burst, defaults[i].Burst, use.Burst))
	}
	return rows
}

func rowOf(path, kind string, limit, preset delivery.Window, use ledger.WindowUse) limitRow {
	return limitRow{Path: path, ID: strings.ReplaceAll(path, ".", "-"), Kind: kind, Default: preset, Use: use,
		Count: inputOf(limit.Count), Seconds: inputOf(limit.Seconds), Shown: windowText(limit)}
}

// keepTyped shows again what a refused form held, in the windows that were
// changed in it; see typed.Kept and typed.Shown.
func keepTyped(rows []limitRow, form url.Values) {
	for i := range rows {
		if row := &rows[i]; windowChanged(form, row.Path) {
			row.Count, row.Seconds, row.Shown = form.Get(row.Path+".count"), form.Get(row.Path+".seconds"), form.Get(row.Path+shownSuffix)
		}
	}
}

// windowChanged is changedIn for the two fields of a window, which have one note.
func windowChanged(form url.Values, path string) bool {
	count, seconds := strings.TrimSpace(form.Get(path+".count")), strings.TrimSpace(form.Get(path+".seconds"))
	held := ""
	if count != "" || seconds != "" {
		held = fmt.Sprintf("%s in %s s", count, seconds)
	}
	return form.Has(path+".count") && held != form.Get(path+shownSuffix)
}

// Endpoint is the name of what is limited.
func (l limitRow) Endpoint() string { return strings.Split(l.Path, ".")[1] }

// Name is the row's, for who hears it without its table.
func (l limitRow) Name() string {
	_, name, _ := strings.Cut(l.Path, ".")
	return strings.ReplaceAll(name, ".", ", ")
}

func inputOf(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// High is from where on a meter warns: four fifths of the limit.
func (l limitRow) High() int { return highOf(l.Use) }

// High is the same for the list of accounts.
func (a accountRow) High() int { return highOf(a.Orders.Sustained) }

func highOf(use ledger.WindowUse) int { return int(math.Ceil(0.8 * float64(use.Window.Count))) }

// windowText is a limit as forms note it.
func windowText(w delivery.Window) string {
	if w.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d in %d s", w.Count, w.Seconds)
}

// DefaultText is the limit of a new account in words.
func (l limitRow) DefaultText() string {
	if l.Default.Count == 0 {
		return "none"
	}
	return shownWindow(l.Default)
}

// shownWindow is a limit as pages write numbers.
func shownWindow(w delivery.Window) string {
	return fmt.Sprintf("%s in %s s", layout.Count(int64(w.Count)), layout.Count(int64(w.Seconds)))
}

// changedLimits are the windows of a form that differ from what the form noted
// when it was shown, as the API takes them. A window that there was cannot be
// taken away: when its fields are emptied they go as they are, for the API to
// refuse.
func changedLimits(form url.Values) map[string]map[string]map[string]any {
	changed := map[string]map[string]map[string]any{}
	for _, row := range rowsOf(delivery.Limits{}, nil) {
		if !windowChanged(form, row.Path) {
			continue
		}
		parts := strings.Split(row.Path, ".")
		if changed[parts[1]] == nil {
			changed[parts[1]] = map[string]map[string]any{}
		}
		changed[parts[1]][parts[2]] = map[string]any{
			"count": number(form.Get(row.Path + ".count")), "seconds": number(form.Get(row.Path + ".seconds"))}
	}
	return changed
}
