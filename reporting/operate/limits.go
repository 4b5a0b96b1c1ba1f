package operate

import (
	"fmt"
	"math"
	"net/url"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// limitRow is one window of the limits' table.
type limitRow struct {
	Path  string // the API's name: limits.orders.sustained
	ID    string // the same as an element's id
	Of    string // the requests that count; empty: as in the row before
	Kind  string // sustained, burst, refill
	Limit delivery.Window
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
		sustained := limitRow{Path: path + ".sustained", Of: limitedRequests[endpoint.String()], Kind: "sustained",
			Limit: limit.Sustained, Default: defaults[i].Sustained, Use: use.Sustained}
		if endpoint == ledger.EndpointStores {
			sustained.Kind = "refill"
		}
		rows = append(rows, sustained, limitRow{Path: path + ".burst", Kind: "burst",
			Limit: limit.Burst, Default: defaults[i].Burst, Use: use.Burst})
	}
	for i := range rows {
		rows[i].ID = strings.ReplaceAll(rows[i].Path, ".", "-")
	}
	return rows
}

// Endpoint is the name of what is limited.
func (l limitRow) Endpoint() string { return strings.Split(l.Path, ".")[1] }

// Name is the row's, for who hears it without its table.
func (l limitRow) Name() string {
	_, name, _ := strings.Cut(l.Path, ".")
	return strings.ReplaceAll(name, ".", ", ")
}

// Shown is the limit as the form notes it, to tell later what was changed.
func (l limitRow) Shown() string { return windowText(l.Limit) }

// Count and Seconds are the inputs' values; empty: there is no such window.
func (l limitRow) Count() string { return inputOf(l.Limit.Count) }

// Seconds is explained at Count.
func (l limitRow) Seconds() string { return inputOf(l.Limit.Seconds) }

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

func windowText(w delivery.Window) string {
	if w.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d in %d s", w.Count, w.Seconds)
}

// DefaultText is the limit of a new account in words.
func (l limitRow) DefaultText() string {
	if text := windowText(l.Default); text != "" {
		return text
	}
	return "none"
}

// changedLimits are the windows of a form that differ from what the form noted
// when it was shown, as the API takes them. A window that there was cannot be
// taken away: when its fields are emptied they go as they are, for the API to
// refuse.
func changedLimits(form url.Values) map[string]map[string]map[string]any {
	changed := map[string]map[string]map[string]any{}
	for _, row := range rowsOf(delivery.Limits{}, nil) {
		count, seconds := strings.TrimSpace(form.Get(row.Path+".count")), strings.TrimSpace(form.Get(row.Path+".seconds"))
		typed := ""
		if count != "" || seconds != "" {
			typed = fmt.Sprintf("%s in %s s", count, seconds)
		}
		if !form.Has(row.Path+".count") || typed == form.Get(row.Path+".shown") {
			continue
		}
		parts := strings.Split(row.Path, ".")
		if changed[parts[1]] == nil {
			changed[parts[1]] = map[string]map[string]any{}
		}
		changed[parts[1]][parts[2]] = map[string]any{"count": number(count), "seconds": number(seconds)}
	}
	return changed
}
