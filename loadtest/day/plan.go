package day

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// ordersJSON is what orders are drawn from, here and in lib/orders.js.
//
//go:embed orders.json
var ordersJSON []byte

type catalogue struct {
	// Places are real ones in the six cities that the demo fleet covers, city by city.
	Places []struct {
		City, District, Street string
		Latitude, Longitude    float64
		Branch                 bool // the vendor has a store there; two in each city
	}
	FirstNames, Surnames, PhonePrefixes, Notes []string
	Payments                                   []string // payment.type; "": left out
	// Classes are what else may become of an order than its delivery.
	Classes []struct {
		Turns []int // which of every 25 orders are of the class
		Kinds []kind
	}
}

// kind is what an order is to be.
type kind struct {
	Change     object // members of the body; those of objects are changed one by one
	Malformed  bool   // the body is cut off
	Status     int    // of the answer
	Code       string // errorCode
	CancelAt   string // status after which the vendor cancels; Searching: at once
	End        string // terminal status of an accepted order
	Failure    string // its reason
	Duplicates bool   // every webhook is sent twice
}

type object = map[string]any

// store is one branch of the vendor.
type store struct {
	id, city string
	body     object
}

// request is one planned POST /orders with the answer it must get.
type request struct {
	want       kind
	key        string // X-Idempotency-Key
	externalID string
	storeID    string
	payment    string // payment.type; "none": left out
	kurus      int64  // orderAmount
	body       []byte
	// original is the request that this one repeats, sent after its answer.
	original *request

	done   chan struct{}    // closed when what follows is final
	answer client.Answer    // Status 0: there was none
	took   float64          // milliseconds; 0: not answered at the first try
	order  receiver.History // that was accepted, read at the end
}

// plan is a whole day before it is played.
type plan struct {
	catalogue
	stores   []store
	requests []*request

	rng    *rand.Rand
	prefix string
}

// newPlan plans distinct orders and some repetitions, the same ones for the same seed
// and prefix. prefix begins every external id.
func newPlan(orders int, seed uint64, prefix string) (*plan, error) {
	p := &plan{rng: rand.New(rand.NewPCG(seed, 0)), prefix: prefix}
	d := json.NewDecoder(bytes.NewReader(ordersJSON))
	d.UseNumber()
	if err := d.Decode(&p.catalogue); err != nil {
		return nil, fmt.Errorf("orders.json: %w", err)
	}
	p.addStores()
	kinds := make([]kind, orders)
	for _, class := range p.Classes {
		used := 0
		for i := range kinds {
			if slices.Contains(class.Turns, i%25) {
				kinds[i] = class.Kinds[used%len(class.Kinds)]
				used++
			}
		}
	}
	p.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, k := range kinds {
		if err := p.add(k); err != nil {
			return nil, err
		}
	}
	p.addRepeats(max(orders/20, 3))
	return p, nil
}

func (p *plan) addStores() {
	for _, at := range p.Places {
		if !at.Branch {
			continue
		}
		p.stores = append(p.stores, store{p.prefix + "S-" + at.District, at.City, object{
			"taxNumber": strconv.Itoa(1000000000 + p.rng.IntN(8999999999)),
			"name":      "Anadolu Sofrası " + at.District,
			"phone":     fmt.Sprintf("0212%07d", p.rng.IntN(10000000)),
			"address": object{
				"text":     fmt.Sprintf("%s No: %d, %s/%s", at.Street, 1+p.rng.IntN(120), at.District, at.City),
				"latitude": at.Latitude, "longitude": at.Longitude,
			},
		}})
	}
}

func pick[T any](p *plan, list []T) T { return list[p.rng.IntN(len(list))] }

func (p *plan) add(k kind) (err error) {
	number := len(p.requests) + 1
	if k.Status == 0 {
		k.Status = http.StatusCreated
		if k.End == "" {
			k.End = "Delivered"
		}
	}
	at := pick(p, p.Places)
	first := slices.IndexFunc(p.stores, func(s store) bool { return s.city == at.City })
	r := &request{
		want: k, externalID: fmt.Sprintf("%s%05d", p.prefix, number), storeID: p.stores[first+p.rng.IntN(2)].id,
		payment: "none", kurus: int64(80 + p.rng.IntN(170000)), done: make(chan struct{}),
	}
	r.key = r.externalID // the spec's suggestion
	if number%10 == 0 {
		r.key = "key-" + r.externalID // a key of its own is as good
	}
	amount := json.Number(fmt.Sprintf("%d.%02d", r.kurus/100, r.kurus%100))
	o := object{
		"externalStoreId": r.storeID,
		"externalOrderId": r.externalID,
		"recipient": object{
			"name":  pick(p, p.FirstNames) + " " + pick(p, p.Surnames),
			"phone": pick(p, p.PhonePrefixes) + fmt.Sprintf("5%09d", p.rng.IntN(1e9)),
		},
		"dropoff": object{
			"text":       fmt.Sprintf("%s No: %d, %s/%s", at.Street, 1+p.rng.IntN(200), at.District, at.City),
			"latitude":   at.Latitude + (p.rng.Float64()-0.5)*0.005, // at most about 300 m away
			"longitude":  at.Longitude + (p.rng.Float64()-0.5)*0.005,
			"buildingNo": strconv.Itoa(1 + p.rng.IntN(200)), "doorNo": strconv.Itoa(1 + p.rng.IntN(40)), "floor": strconv.Itoa(p.rng.IntN(12)),
		},
		"orderAmount": amount,
	}
	if note := pick(p, p.Notes); note != "" {
		o["packageNote"] = note
	}
	if method := p.Payments[number%len(p.Payments)]; method != "" {
		r.payment = method
		payment := object{"type": method}
		if method != "Prepaid" {
			payment["collectionAmount"] = amount
		}
		o["payment"] = payment
	}
	for name, value := range k.Change {
		inner, is := o[name].(object)
		if changes, nested := value.(object); is && nested {
			maps.Copy(inner, changes)
		} else {
			o[name] = value
		}
	}
	if r.body, err = json.Marshal(o); err != nil {
		return err
	}
	if k.Malformed {
		r.body = r.body[:len(r.body)-1]
	}
	p.requests = append(p.requests, r)
	return nil
}

// addRepeats sends n of the planned requests again, one of three ways, after the ones that they repeat.
func (p *plan) addRepeats(n int) {
	for i := range n {
		original := pick(p, p.requests)
		for original.want.Status != http.StatusCreated || original.original != nil {
			original = pick(p, p.requests)
		}
		again := &request{key: original.key, externalID: original.externalID, body: original.body, original: original, done: make(chan struct{})}
		again.want = kind{Status: http.StatusConflict, Code: "DUPLICATE_ORDER"}
		switch i % 3 {
		case 0: // the same key and body: the original answer
			again.want = kind{Status: http.StatusCreated}
		case 1: // the same key, another body
			again.body = append(slices.Clone(original.body), ' ')
		case 2: // another key, the same external id
			again.key = "again-" + original.externalID
		}
		at := slices.Index(p.requests, original) + 1
		at += p.rng.IntN(len(p.requests) - at + 1)
		p.requests = slices.Insert(p.requests, at, again)
	}
}

// accepted are the distinct orders that the service took.
func (p *plan) accepted() (orders []*request) {
	for _, r := range p.requests {
		if r.original == nil && r.order.OrderID != "" {
			orders = append(orders, r)
		}
	}
	return orders
}
