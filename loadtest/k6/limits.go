package main

import (
	"time"

	"vendorapi/loadtest/k6/results"
)

// limits are the limits of an account, as the admin API shows them.
type limits struct {
	Orders      endpointLimit `json:"orders"`
	OrderStatus endpointLimit `json:"orderStatus"`
	Cancel      endpointLimit `json:"cancel"`
	Stores      endpointLimit `json:"stores"`
	Token       endpointLimit `json:"token"`
}

// endpointLimit is what one endpoint allows. Without a burst the sustained window is the only one.
type endpointLimit struct {
	Sustained window  `json:"sustained"`
	Burst     *window `json:"burst,omitempty"`
}

// window allows Count requests in any span of so many seconds.
type window struct {
	Count   int `json:"count"`
	Seconds int `json:"seconds"`
}

// contractLimits returns the limits of an account that has no others (spec, "Limits").
func contractLimits() *limits {
	return &limits{
		Orders:      endpointLimit{Sustained: window{Count: 600, Seconds: 60}, Burst: &window{Count: 120, Seconds: 10}},
		OrderStatus: endpointLimit{Sustained: window{Count: 3000, Seconds: 60}},
		Cancel:      endpointLimit{Sustained: window{Count: 600, Seconds: 60}},
		Stores:      endpointLimit{Sustained: window{Count: 60, Seconds: 60}, Burst: &window{Count: 200, Seconds: 10}},
		Token:       endpointLimit{Sustained: window{Count: 60, Seconds: 3600}},
	}
}

// raisedLimits returns limits that allow so many orders in 10 s, as many cancellations and reads (though never fewer than
// the contract), and 600 tokens an hour, because each virtual user renews the token for itself.
func raisedLimits(orders int) *limits {
	perMinute := 6 * orders
	raised := contractLimits()
	raised.Orders = endpointLimit{Sustained: window{Count: perMinute, Seconds: 60}, Burst: &window{Count: orders, Seconds: 10}}
	raised.Cancel.Sustained.Count = max(raised.Cancel.Sustained.Count, perMinute)
	raised.OrderStatus.Sustained.Count = max(raised.OrderStatus.Sustained.Count, perMinute)
	raised.Token.Sustained.Count = 600

	return raised
}

// burstOrders returns how many orders may be sent in the shorter window.
func (l *limits) burstOrders() int {
	if l.Orders.Burst == nil {
		return l.Orders.Sustained.Count
	}
	return l.Orders.Burst.Count
}

// forResults converts a window to the type of package results.
func (w window) forResults() results.Limit {
	return results.Limit{Count: w.Count, Span: time.Duration(w.Seconds) * time.Second}
}

// forResults converts limits to the type of package results. Of the stores' limits it takes only the burst: the
// sustained one is not checked.
func (l *limits) forResults() results.Limits {
	converted := results.ContractLimits()
	converted.Orders.Sustained = l.Orders.Sustained.forResults()
	converted.Orders.Burst = converted.Orders.Sustained
	if l.Orders.Burst != nil {
		converted.Orders.Burst = l.Orders.Burst.forResults()
	}

	converted.Cancel = l.Cancel.Sustained.forResults()
	converted.OrderStatus = l.OrderStatus.Sustained.forResults()
	converted.Token = l.Token.Sustained.forResults()
	if l.Stores.Burst != nil {
		converted.Stores = l.Stores.Burst.forResults()
	}

	return converted
}
