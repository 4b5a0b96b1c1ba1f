package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"vendorapi/loadtest/harness"
)

const storeID = "kadikoy-1"

// orderBody is an order as a point-of-sale sends it.
const orderBody = `{"externalStoreId":"` + storeID + `","externalOrderId":"` + placeholder + `","orderedAt":"2026-11-21T12:30:00+03:00",` +
	`"recipient":{"name":"Ayşe Yılmaz","phone":"05321234567"},` +
	`"dropoff":{"text":"Caferağa Mah. Moda Cad. No:12 D:5","latitude":40.98713,"longitude":29.02761,"buildingNo":"12","doorNo":"5","floor":"2"},` +
	`"packageNote":"Kapıya bırakın","orderAmount":349.90,"payment":{"type":"Card","collectionAmount":349.90}}`

// placeholder stands for an order's external id, which is its idempotency key,
// too; its digits are the request's number.
const (
	placeholder = "POS-000000000000"
	digits      = len(placeholder) - len("POS-")
)

// vendor is an account with one store, and what it needs to order.
type vendor struct {
	account, token, clientID, secret string
	wide                             bool // its limits on orders are out of reach
	template                         []byte
	places                           []int // where the template's digits are
}

func (v *vendor) compose() {
	v.template = fmt.Appendf(nil, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\nAccept: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nX-Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		v.token, placeholder, len(orderBody), orderBody)
	v.places = nil
	for at := 0; ; at += digits {
		next := bytes.Index(v.template[at:], []byte(placeholder))
		if next < 0 {
			return
		}
		at += next + len("POS-")
		v.places = append(v.places, at)
	}
}

// order appends the request that creates order number n.
func (v *vendor) order(dst []byte, n int) []byte {
	start := len(dst)
	dst = append(dst, v.template...)
	for _, at := range v.places {
		number := dst[start+at:][:digits]
		for i, rest := digits-1, n; i >= 0; i, rest = i-1, rest/10 {
			number[i] = '0' + byte(rest%10)
		}
	}
	return dst
}

// read appends the request that reads an order.
func (v *vendor) read(dst []byte, id string) []byte {
	dst = append(dst, "GET /api/vendor/v1/orders/"...)
	dst = append(dst, id...)
	dst = append(dst, " HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer "...)
	dst = append(dst, v.token...)
	return append(dst, "\r\n\r\n"...)
}

// ordering is a volley of new orders of some vendors, who take turns.
func (s *system) ordering(vendors []int, connections int, rate float64, d time.Duration) volley {
	// More than any run sends; only the distance matters.
	const span = 100_000_000
	first := s.numbers.block(span)
	return volley{
		addr: s.addr, connections: connections, rate: rate, duration: d,
		request: func(dst []byte, n int) ([]byte, int, int) {
			v := vendors[n%len(vendors)]
			return s.vendors[v].order(dst, first+n), v, first + n
		},
		count: (*tally).count,
	}
}

// again is a volley that sends orders of the past again, byte for byte; the
// answers are counted like those of new ones.
func (s *system) again(past []shot) volley {
	return volley{
		addr: s.addr, connections: readers, duration: time.Minute, most: atMost(len(past)),
		request: func(dst []byte, n int) ([]byte, int, int) {
			p := &past[n]
			return s.vendors[p.vendor].order(dst, p.number), p.vendor, p.number
		},
		count: (*tally).count,
	}
}

// insist sends orders of the past again, as clients do until they are answered:
// up to five times what is answered 503 or not at all. It answers what became an
// order, or was one, and what went wrong.
func (s *system) insist(ctx context.Context, past []shot) (orders []placed, oddity string) {
	for try := 0; try < 5 && len(past) > 0 && ctx.Err() == nil; try++ {
		t := newTally()
		v := s.again(past)
		v.fire(ctx, t)
		orders, past, oddity = append(orders, t.orders...), slices.Concat(t.refusals, t.unknown), oddity+t.oddity()
	}
	return orders, oddity
}

// atMost bounds a volley to n requests, which may be none.
func atMost(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// readers is how many connections read back.
const readers = 32

// reading is a volley that reads orders.
func (s *system) reading(orders []placed, connections int, rate float64, d time.Duration) volley {
	return volley{
		addr: s.addr, connections: connections, rate: rate, duration: d, most: atMost(len(orders)),
		request: func(dst []byte, n int) ([]byte, int, int) {
			o := &orders[n]
			return s.vendors[o.vendor].read(dst, o.id), o.vendor, o.number
		},
		count: func(t *tally, sh shot, a harness.Answer, at time.Time) {
			t.countRead(sh, a, at, `"orderId":"`+orders[sh.n].id+`"`)
		},
	}
}

// proveKept reads every accepted order back and sends some of them again: the
// service must know each of them by its id and by its key.
func (s *system) proveKept(ctx context.Context, orders []placed) {
	found, oddity, left := 0, "", orders
	// An order that was read a moment ago may be read again after ten seconds.
	for try := 0; try < 3 && len(left) > 0 && ctx.Err() == nil; try++ {
		if try > 0 {
			time.Sleep(pollInterval)
		}
		back := newTally()
		v := s.reading(left, readers, 0, 5*time.Minute)
		v.fire(ctx, back)
		found, oddity = found+int(back.accepted.TotalCount()), oddity+back.oddity()
		var later []placed
		for _, sh := range slices.Concat(back.refusals, back.unknown) {
			later = append(later, left[sh.n])
		}
		left = later
	}
	s.sheet.demand(found == len(orders), "accepted orders read back", "all", "%d of %d%s", found, len(orders), oddity)

	const most = 500
	var sample []shot
	ids := map[int]string{}
	for i := 0; i < len(orders); i += 1 + len(orders)/most {
		if o := orders[i]; s.vendors[o.vendor].wide {
			sample, ids[o.number] = append(sample, shot{number: o.number, vendor: o.vendor}), o.id
		}
	}
	repeated, oddity := s.insist(ctx, sample)
	same := 0
	for _, o := range repeated {
		if ids[o.number] == o.id {
			same++
		}
	}
	s.sheet.demand(same == len(sample), "sent again, answered with the same order", "all", "%d of %d%s", same, len(sample), oddity)
}

// oddity describes what went wrong, to stand behind a figure.
func (t *tally) oddity() string {
	text := ""
	if t.wrong > 0 {
		text += fmt.Sprintf("; %d wrong answers such as %s", t.wrong, t.sample)
	}
	if len(t.unknown) > 0 {
		text += fmt.Sprintf("; %d without an answer", len(t.unknown))
	}
	return text
}
