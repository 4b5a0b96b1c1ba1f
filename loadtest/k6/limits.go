package main

import (
	"time"

	"vendorapi/loadtest/k6/results"
)

// limits are an account's, as the admin API has them.
type limits struct {
	Orders      endpointLimit `json:"orders"`
	OrderStatus endpointLimit `json:"orderStatus"`
	Cancel      endpointLimit `json:"cancel"`
	Stores      endpointLimit `json:"stores"`
	Token       endpointLimit `json:"token"`
}

// endpointLimit is what one endpoint allows. A burst of nothing is none.
type endpointLimit struct {
	Sustained window  `json:"sustained"`
	Burst     *window `json:"burst,omitempty"`
}

type window struct {
	Count   int `json:"count"`
	Seconds int `json:"seconds"`
}

// contractLimits are those of an account that has no others (spec, "Limits").
func contractLimits() *limits {
	return &limits{
		Orders:      endpointLimit{Sustained: window{Count: 600, Seconds: 60}, Burst: &window{Count: 120, Seconds: 10}},
		OrderStatus: endpointLimit{Sustained: window{Count: 3000, Seconds: 60}},
		Cancel:      endpointLimit{Sustained: window{Count: 600, Seconds: 60}},
		Stores:      endpointLimit{Sustained: window{Count: 60, Seconds: 60}, Burst: &window{Count: 200, Seconds: 10}},
		Token:       endpointLimit{Sustained: window{Count: 60, Seconds: 3600}},
	}
}

// raisedLimits allow so many orders in 10 s, as many cancellations, and a token for each of some hundred VUs.
func raisedLimits(orders int) *limits {
	raised := contractLimits()
	raised.Orders = endpointLimit{Sustained: window{Count: 6 * orders, Seconds: 60}, Burst: &window{Count: orders, Seconds: 10}}
	raised.Cancel.Sustained.Count = max(raised.Cancel.Sustained.Count, 6*orders)
	raised.OrderStatus.Sustained.Count = max(raised.OrderStatus.Sustained.Count, 6*orders)
	raised.Token.Sustained.Count = 600
	return raised
}

// burstOf returns how many orders may be sent in the shorter window.
func (l *limits) burstOf() int {
	if l.Orders.Burst == nil {
		return l.Orders.Sustained.Count
	}
	return l.Orders.Burst.Count
}

func (w window) forResults() results.Limit {
	return results.Limit{Count: w.Count, Span: time.Duration(w.Seconds) * time.Second}
}

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
