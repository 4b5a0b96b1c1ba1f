package main

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// orderBody is an order as a point-of-sale sends it, with every field that one
// has, about 450 bytes.
const orderBody = `{"externalStoreId":"` + storeID + `","externalOrderId":"` + placeholder + `","orderedAt":"2026-11-21T12:30:00+03:00",` +
	`"recipient":{"name":"Ayşe Yılmaz","phone":"05321234567"},` +
	`"dropoff":{"text":"Caferağa Mah. Moda Cad. No:12 D:5","latitude":40.98713,"longitude":29.02761,"buildingNo":"12","doorNo":"5","floor":"2"},` +
	`"packageNote":"Kapıya bırakın","orderAmount":349.90,"payment":{"type":"Card","collectionAmount":349.90}}`

// placeholder stands for an order's external id, which is its idempotency key,
// too, as the spec suggests. Its digits are the order's number.
const (
	placeholder = "POS-0000000000000000"
	digits      = len(placeholder) - len("POS-")
	perBatch    = 1_000_000_000_000 // numbers of one batch
)

// orderBook writes requests that create orders, each with an id of its own.
type orderBook struct {
	templates [][]byte // one per vendor
	places    [][]int  // where a template's digits are
	batches   atomic.Int64
}

func newOrderBook(tokens []string) *orderBook {
	book := &orderBook{}
	for _, token := range tokens {
		template := fmt.Appendf(nil, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\nAccept: application/json\r\n"+
			"Authorization: Bearer %s\r\nContent-Type: application/json\r\nX-Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
			token, placeholder, len(orderBody), orderBody)
		var places []int
		for at := 0; ; at += digits {
			next := bytes.Index(template[at:], []byte(placeholder))
			if next < 0 {
				break
			}
			at += next + len("POS-")
			places = append(places, at)
		}
		book.templates, book.places = append(book.templates, template), append(book.places, places)
	}
	return book
}

// batch is a series of requests for new orders, the vendors taking turns. No
// two batches share an id.
func (book *orderBook) batch() func(dst []byte, n int) []byte {
	first := book.batches.Add(1) * perBatch
	return func(dst []byte, n int) []byte {
		vendor, start := n%len(book.templates), len(dst)
		dst = append(dst, book.templates[vendor]...)
		for _, at := range book.places[vendor] {
			number := dst[start+at : start+at+digits]
			for i, rest := digits-1, first+int64(n); i >= 0; i, rest = i-1, rest/10 {
				number[i] = '0' + byte(rest%10)
			}
		}
		return dst
	}
}
