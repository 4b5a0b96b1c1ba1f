package admin

import (
	"fmt"
	"math"
	"net/url"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// limitRow is a window of the limits: limits.orders.sustained.
type limitRow struct {
	Path, ID string // the API's name, and an element's
	Endpoint ledger.Endpoint
	Kind     string // sustained or burst
	// Count and Seconds are the inputs' values; empty: there is no such window.
	Count, Seconds string
	Shown          string          // as the form notes it, to find what was changed
	Default        delivery.Window // of a new account; a zero Count: none
	Use            ledger.WindowUse
}

// limitRows are both windows of each endpoint, changed ones as they were typed. uses is in
// the ledger's order and may be nil.
func limitRows(limits delivery.Limits, uses []ledger.EndpointUse, form url.Values) (rows []limitRow) {
	ofEndpoints := func(l delivery.Limits) []delivery.EndpointLimit {
		return []delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}
	}
	defaults := ofEndpoints(delivery.DefaultLimits())
	for i, limit := range ofEndpoints(limits) {
		use := ledger.EndpointUse{}
		if i < len(uses) {
			use = uses[i]
		}
		for _, w := range []struct {
			kind           string
			stored, preset delivery.Window
			use            ledger.WindowUse
		}{
			{"sustained", limit.Sustained, defaults[i].Sustained, use.Sustained}, {"burst", limit.Burst, defaults[i].Burst, use.Burst},
		} {
			row := limitRow{Endpoint: ledger.Endpoint(i), Kind: w.kind, Default: w.preset, Use: w.use,
				Count: inputOf(w.stored.Count), Seconds: inputOf(w.stored.Seconds)}
			row.Path = "limits." + row.Endpoint.String() + "." + w.kind
			row.ID, row.Shown = strings.ReplaceAll(row.Path, ".", "-"), windowNote(row.Count, row.Seconds)
			if windowChanged(form, row.Path) {
				row.Count, row.Seconds, row.Shown = form.Get(row.Path+".count"), form.Get(row.Path+".seconds"), form.Get(row.Path+shownSuffix)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func windowNote(count, seconds string) string {
	if count == "" && seconds == "" {
		return ""
	}
	return count + " in " + seconds + " s"
}

// windowChanged is changedIn for the two fields of a window, which have one note.
func windowChanged(form url.Values, path string) bool {
	held := windowNote(strings.TrimSpace(form.Get(path+".count")), strings.TrimSpace(form.Get(path+".seconds")))
	return form.Has(path+".count") && held != form.Get(path+shownSuffix)
}

// changedLimits are the changed windows as the API takes them. Emptied fields are sent
// as they are, for the API to refuse.
func changedLimits(form url.Values) map[string]map[string]any {
	changed := map[string]map[string]any{}
	for _, row := range limitRows(delivery.Limits{}, nil, form) {
		if !windowChanged(form, row.Path) {
			continue
		}
		endpoint := row.Endpoint.String()
		if changed[endpoint] == nil {
			changed[endpoint] = map[string]any{}
		}
		changed[endpoint][row.Kind] = map[string]any{"count": number(row.Count), "seconds": number(row.Seconds)}
	}
	return changed
}

func (l limitRow) High() int { return int(math.Ceil(0.8 * float64(l.Use.Window.Count))) }

// inputOf is the value of an input for a number; empty for 0, which is none.
func inputOf(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
