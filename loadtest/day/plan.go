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
	Places []place

	FirstNames, Surnames, PhonePrefixes, Notes []string

	Payments []string // payment.type; "": left out

	// Classes are what else may become of an order than its delivery.
	Classes []struct {
		Turns []int // which of every 25 orders are of the class
		Kinds []kind
	}
}

type place struct {
	City, District, Street string
	Latitude, Longitude    float64
	Branch                 bool // the vendor has a store there; two in each city
}

// kind is what an order is to be.
type kind struct {
	Change    object // members of the body; those of objects are changed one by one
	Malformed bool   // the body is cut off

	Status int    // of the answer
	Code   string // errorCode

	CancelAt     string // status at which the vendor cancels
	End          string // terminal status of an accepted order
	Failure      string // failureReason of an order that ends as Failed
	LateDelivery bool   // the fleet reports Delivered after the order has failed
	Duplicates   bool   // every webhook is sent twice
}

type object = map[string]any

// kurus is an amount. As text and in JSON it is in lira with two decimals.
type kurus int64

// String returns the amount in lira with two decimals, such as "12.50". The amount must not be negative.
func (k kurus) String() string { return fmt.Sprintf("%d.%02d", k/100, k%100) }

// UnmarshalText reads an amount in lira with two decimals. It does not check that there are two.
func (k *kurus) UnmarshalText(text []byte) error {
	amount, err := strconv.ParseInt(string(bytes.Replace(text, []byte("."), nil, 1)), 10, 64)
	*k = kurus(amount)
	return err
}

// store is one branch of the vendor.
type store struct {
	id, name, city string
	body           object
}

// request is one planned POST /orders.
type request struct {
	want kind // what the answer, and then the order, must be

	key        string // X-Idempotency-Key
	externalID string
	store      *store
	payment    string // payment.type; "none": left out
	amount     kurus
	body       []byte

	// original is the request that this one repeats. It is sent first.
	original *request

	// done is closed when answer and order.OrderID are final.
	done   chan struct{}
	answer client.Answer    // Status 0: there was none
	order  receiver.History // empty unless the order was accepted; the rest of it is read at the end
}

// plan is a whole day before it is played.
type plan struct {
	catalogue
	stores   []*store
	requests []*request

	rng *rand.Rand
}

// newPlan plans distinct orders and some repetitions. The same number plans the same day.
func newPlan(orders int) (*plan, error) {
	p := &plan{rng: rand.New(rand.NewPCG(1, 0))}
	decoder := json.NewDecoder(bytes.NewReader(ordersJSON))
	decoder.UseNumber()
	if err := decoder.Decode(&p.catalogue); err != nil {
		return nil, fmt.Errorf("orders.json: %w", err)
	}

	p.addStores()
	for _, k := range p.kinds(orders) {
		if err := p.add(k); err != nil {
			return nil, err
		}
	}

	p.addRepeats(max(orders/20, 3))

	return p, nil
}

// kinds returns what each order is to be, in random order.
func (p *plan) kinds(orders int) []kind {
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

	for i := range kinds {
		k := &kinds[i]
		if k.Status == 0 {
			k.Status = http.StatusCreated
		}
		if k.Status == http.StatusCreated && k.End == "" {
			k.End = "Delivered"
		}
	}

	p.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })

	return kinds
}

func (p *plan) addStores() {
	for _, at := range p.Places {
		if !at.Branch {
			continue
		}

		name := "Anadolu Sofrası " + at.District
		p.stores = append(p.stores, &store{id: "S-" + at.District, name: name, city: at.City, body: object{
			"taxNumber": strconv.Itoa(1000000000 + p.rng.IntN(8999999999)),
			"name":      name,
			"phone":     fmt.Sprintf("0212%07d", p.rng.IntN(10000000)),
			"address": object{
				"text":     fmt.Sprintf("%s No: %d, %s/%s", at.Street, 1+p.rng.IntN(120), at.District, at.City),
				"latitude": at.Latitude, "longitude": at.Longitude,
			},
		}})
	}
}

func pick[T any](p *plan, list []T) T { return list[p.rng.IntN(len(list))] }

// add plans one order: to a place near a store of the same city, changed as its kind says.
func (p *plan) add(k kind) error {
	number := len(p.requests) + 1
	at := pick(p, p.Places)
	firstOfCity := slices.IndexFunc(p.stores, func(s *store) bool { return s.city == at.City })
	r := &request{
		want:       k,
		externalID: fmt.Sprintf("DAY-%05d", number),
		store:      p.stores[firstOfCity+p.rng.IntN(2)],
		payment:    "none",
		amount:     kurus(80 + p.rng.IntN(170000)),
		done:       make(chan struct{}),
	}

	r.key = r.externalID // the spec's suggestion
	if number%10 == 0 {
		r.key = "key-" + r.externalID // any other key is as good
	}

	order := p.draw(r, at)
	method := p.Payments[number%len(p.Payments)]
	if method != "" {
		r.payment = method
		payment := object{"type": method}
		if method != "Prepaid" {
			payment["collectionAmount"] = json.Number(r.amount.String())
		}
		order["payment"] = payment
	}

	change(order, k.Change)

	var err error
	r.body, err = json.Marshal(order)
	if err != nil {
		return err
	}

	if k.Malformed {
		r.body = r.body[:len(r.body)-1]
	}

	p.requests = append(p.requests, r)

	return nil
}

// draw returns the body of an order to somebody within about 300 m of a place, without a payment.
func (p *plan) draw(r *request, at place) object {
	order := object{
		"externalStoreId": r.store.id,
		"externalOrderId": r.externalID,
		"recipient": object{
			"name":  pick(p, p.FirstNames) + " " + pick(p, p.Surnames),
			"phone": pick(p, p.PhonePrefixes) + fmt.Sprintf("5%09d", p.rng.IntN(1e9)),
		},
		"dropoff": object{
			"text":       fmt.Sprintf("%s No: %d, %s/%s", at.Street, 1+p.rng.IntN(200), at.District, at.City),
			"latitude":   at.Latitude + (p.rng.Float64()-0.5)*0.005,
			"longitude":  at.Longitude + (p.rng.Float64()-0.5)*0.005,
			"buildingNo": strconv.Itoa(1 + p.rng.IntN(200)),
			"doorNo":     strconv.Itoa(1 + p.rng.IntN(40)),
			"floor":      strconv.Itoa(p.rng.IntN(12)),
		},
		"orderAmount": json.Number(r.amount.String()),
	}

	note := pick(p, p.Notes)
	if note != "" {
		order["packageNote"] = note
	}

	return order
}

// change sets members of an order. Of an object in it only the members that the change names are set.
func change(order, changes object) {
	for name, value := range changes {
		inner, isObject := order[name].(object)
		innerChanges, changesObject := value.(object)
		if isObject && changesObject {
			maps.Copy(inner, innerChanges)
		} else {
			order[name] = value
		}
	}
}

// addRepeats sends n of the accepted orders again, in one of three ways, at any time after the first.
func (p *plan) addRepeats(n int) {
	for i := range n {
		original := pick(p, p.requests)
		for original.want.Status != http.StatusCreated || original.original != nil {
			original = pick(p, p.requests)
		}

		repeat := &request{
			want:       kind{Status: http.StatusConflict, Code: "DUPLICATE_ORDER"},
			key:        original.key,
			externalID: original.externalID,
			body:       original.body,
			original:   original,
			done:       make(chan struct{}),
		}

		switch i % 3 {
		case 0: // the same key and body: the original answer
			repeat.want = kind{Status: http.StatusCreated}
		case 1: // the same key, another body
			repeat.body = append(slices.Clone(original.body), ' ')
		case 2: // another key, the same external id
			repeat.key = "again-" + original.externalID
		}

		at := slices.Index(p.requests, original) + 1
		at += p.rng.IntN(len(p.requests) - at + 1)
		p.requests = slices.Insert(p.requests, at, repeat)
	}
}

// accepted returns the distinct orders that the service took.
func (p *plan) accepted() (orders []*request) {
	for _, r := range p.requests {
		if r.original == nil && r.order.OrderID != "" {
			orders = append(orders, r)
		}
	}
	return orders
}
