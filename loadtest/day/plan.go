package day

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// place is a neighbourhood: a street that exists there, and where it is.
type place struct {
	City, District, Street string
	Latitude, Longitude    float64
}

//go:embed places.json
var placesJSON []byte

// places are real ones in the six cities that the demo fleet covers, city by city;
// the first two of each city also have a branch of the vendor.
var places = func() (all []place) {
	if err := json.Unmarshal(placesJSON, &all); err != nil {
		panic(err) // the file is part of the program
	}
	return all
}()

// Where the demo fleet does not deliver: in Turkey, and abroad.
var (
	outOfCoverage = place{"Van", "İpekyolu", "Cumhuriyet Caddesi", 38.5012, 43.3730}
	outOfTurkey   = place{"Athens", "Plaka", "Adrianou", 37.9742, 23.7279}
)

// The customers.
var (
	firstNames = []string{"Ayşe", "Mehmet", "Zeynep", "Mustafa", "Elif", "Ali", "Fatma", "Hüseyin", "Emine", "İsmail", "Gülşah", "Çağrı"}
	surnames   = []string{"Yılmaz", "Kaya", "Demir", "Şahin", "Çelik", "Yıldırım", "Öztürk", "Aydın", "Özkan", "Ünal", "Işık", "Güneş"}
	notes      = []string{"", "", "Zili çalmayın, bebek uyuyor", "Kapıda nakit ödenecek", "Sıcak paket", "Güvenliğe bırakın"}
)

// object is a JSON body.
type object = map[string]any

// store is one branch of the vendor.
type store struct {
	id, city string
	body     object
}

// request is one planned POST /orders with the answer it must get.
type request struct {
	key        string // X-Idempotency-Key
	externalID string
	order      object
	body       []byte // order as it is sent
	payment    string // payment.type; "none" when left out
	wantStatus int
	wantCode   string
	// original is the request that this one repeats; it is sent after that
	// one's answer.
	original *request
	// cancelAt is the status after which the vendor cancels; "Searching" means
	// right after the creation.
	cancelAt string
	// wantEnd is the terminal status of an accepted order.
	wantEnd    string
	wantReason string // for Failed
	// duplicates says that every webhook of the order is sent twice
	// (SIM:DUPLICATE).
	duplicates bool

	done   chan struct{} // closed when result is final
	result result
}

// kind makes of a usual order what it is to be.
type kind func(o object, r *request)

func delivered(object, *request) {}

// failures are the reasons that the sandbox courier is asked for.
var failures = []string{
	"CustomerRefused", "AddressNotFound", "CourierIncident", "CustomerUnreachable", "StoreClosed",
	"PaymentRefused", "PackageNotReady", "PackageDamaged", "Other",
}

func failing(reason string) kind {
	return func(o object, r *request) {
		o["packageNote"] = "SIM:FAIL=" + reason
		r.wantEnd, r.wantReason = "Failed", reason
	}
}

// cancellable are the statuses in which a vendor may cancel; the courier is
// asked to wait there, so that the cancellation is never too late.
var cancellable = []string{"Searching", "Assigned", "PickingUp"}

func cancelled(status string) kind {
	return func(o object, r *request) {
		o["packageNote"] = "SIM:HOLD=" + status
		r.cancelAt, r.wantEnd = status, "Cancelled"
	}
}

// receiverKinds try what a receiver has to stand.
var receiverKinds = []kind{
	func(o object, r *request) { o["packageNote"], r.duplicates = "SIM:DUPLICATE her olay iki kez", true },
	func(o object, _ *request) { o["packageNote"] = "SIM:REORDER sıra karışık" },
}

// invalidKinds are orders that must be refused, one for each code.
var invalidKinds = []kind{
	refused(http.StatusUnprocessableEntity, "INVALID_PHONE", func(o object) { o["recipient"].(object)["phone"] = "532 123" }),
	refused(http.StatusUnprocessableEntity, "DROPOFF_OUT_OF_COVERAGE", func(o object) { o["dropoff"] = address(outOfCoverage, 1) }),
	refused(http.StatusUnprocessableEntity, "INVALID_ADDRESS", func(o object) { o["dropoff"].(object)["text"] = "Moda" }),
	refused(http.StatusConflict, "STORE_NOT_CONFIGURED", func(o object) { o["externalStoreId"] = "no-such-store" }),
	refused(http.StatusUnprocessableEntity, "VALIDATION_FAILED", func(o object) { o["orderAmount"] = json.Number("12.345") }),
	refused(http.StatusUnprocessableEntity, "INVALID_RECIPIENT", func(o object) { o["recipient"].(object)["name"] = "A" }),
	refused(http.StatusUnprocessableEntity, "COORDINATE_MISMATCH", func(o object) { o["dropoff"] = address(outOfTurkey, 1) }),
	refused(http.StatusServiceUnavailable, "FLEET_UNAVAILABLE", func(o object) { o["packageNote"] = "SIM:FLEET_UNAVAILABLE" }),
	refused(http.StatusUnprocessableEntity, "READY_AT_TOO_FAR", func(o object) {
		o["readyAt"] = time.Now().Add(5 * time.Hour).Format(time.RFC3339)
	}),
	refused(http.StatusLocked, "FLEET_SUSPENDED", func(o object) { o["packageNote"] = "SIM:FLEET_SUSPENDED" }),
	refused(http.StatusUnprocessableEntity, "VALIDATION_FAILED", func(o object) { o["payment"] = object{"type": "Barter"} }),
	func(o object, r *request) {
		r.body = bytes.TrimSuffix(encode(o), []byte("}"))
		r.wantStatus, r.wantCode, r.wantEnd = http.StatusBadRequest, "MALFORMED_REQUEST", ""
	},
}

func refused(status int, code string, breakRule func(object)) kind {
	return func(o object, r *request) {
		breakRule(o)
		r.wantStatus, r.wantCode, r.wantEnd = status, code, ""
	}
}

// address is a door of a place.
func address(p place, number int) object {
	return object{
		"text":     fmt.Sprintf("%s No: %d, %s/%s", p.Street, number, p.District, p.City),
		"latitude": p.Latitude, "longitude": p.Longitude,
	}
}

// plan is a whole day before it is played.
type plan struct {
	stores   []store
	requests []*request

	rng    *rand.Rand
	prefix string
}

// newPlan lays out orders distinct orders and some repetitions, the same ones
// for the same seed and prefix. prefix begins every external id.
func newPlan(orders int, seed uint64, prefix string) *plan {
	p := &plan{rng: rand.New(rand.NewPCG(seed, 0)), prefix: prefix}
	p.addStores()
	kinds := mix(orders)
	p.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, k := range kinds {
		p.add(k)
	}
	p.addRepeats(max(orders/20, 3))
	return p
}

// mix shares the orders out: of every 100 about 8 break a rule, 8 fail, 10 are
// cancelled, 4 try the receiver, and the rest is delivered. The kinds of each
// class take turns.
func mix(orders int) (kinds []kind) {
	for i := range orders {
		turn := i / 25
		second := 2*turn + i%25/10
		switch i % 25 {
		case 3, 13:
			kinds = append(kinds, invalidKinds[second%len(invalidKinds)])
		case 6, 16:
			kinds = append(kinds, failing(failures[second%len(failures)]))
		case 8, 18:
			kinds = append(kinds, cancelled(cancellable[second%len(cancellable)]))
		case 20:
			kinds = append(kinds, receiverKinds[turn%len(receiverKinds)])
		default:
			kinds = append(kinds, delivered)
		}
	}
	return kinds
}

// addStores puts a branch into the first two places of each city.
func (p *plan) addStores() {
	for i, at := range places {
		number := 1
		if i > 0 && places[i-1].City == at.City {
			number = 2
		}
		if i > 1 && places[i-2].City == at.City {
			continue
		}
		p.stores = append(p.stores, store{fmt.Sprintf("%sS-%s-%d", p.prefix, at.City, number), at.City, object{
			"taxNumber": strconv.Itoa(1000000000 + p.rng.IntN(8999999999)),
			"name":      "Anadolu Sofrası " + at.District,
			"phone":     fmt.Sprintf("0212%07d", p.rng.IntN(10000000)),
			"address":   address(at, 1+p.rng.IntN(120)),
		}})
	}
}

// add draws one order and lets k make of it what it is.
func (p *plan) add(k kind) {
	number := len(p.requests) + 1
	o := p.draw(number)
	id := o["externalOrderId"].(string)
	r := &request{
		key: id, externalID: id, // the spec's suggestion
		order: o, payment: "none", wantStatus: http.StatusCreated, wantEnd: "Delivered", done: make(chan struct{}),
	}
	if number%10 == 0 {
		r.key = "key-" + id // a key of its own is as good
	}
	if payment, ok := o["payment"].(object); ok {
		r.payment = payment["type"].(string)
	}
	k(o, r)
	if r.body == nil {
		r.body = encode(o)
	}
	p.requests = append(p.requests, r)
}

func (p *plan) draw(number int) object {
	at := places[p.rng.IntN(len(places))]
	at.Latitude += (p.rng.Float64() - 0.5) * 0.005 // some streets away, at most about 300 m
	at.Longitude += (p.rng.Float64() - 0.5) * 0.005
	first := slices.IndexFunc(p.stores, func(s store) bool { return s.city == at.City })
	kurus := 80 + p.rng.IntN(170000)
	amount := json.Number(fmt.Sprintf("%d.%02d", kurus/100, kurus%100))
	dropoff := address(at, 1+p.rng.IntN(200))
	dropoff["buildingNo"], dropoff["doorNo"] = strconv.Itoa(1+p.rng.IntN(200)), strconv.Itoa(1+p.rng.IntN(40))
	dropoff["floor"] = strconv.Itoa(p.rng.IntN(12))
	o := object{
		"externalStoreId": p.stores[first+p.rng.IntN(2)].id,
		"externalOrderId": fmt.Sprintf("%s%05d", p.prefix, number),
		"recipient": object{
			"name":  firstNames[p.rng.IntN(len(firstNames))] + " " + surnames[p.rng.IntN(len(surnames))],
			"phone": []string{"", "0", "+90", "+900"}[p.rng.IntN(4)] + fmt.Sprintf("5%09d", p.rng.IntN(1e9)),
		},
		"dropoff":     dropoff,
		"orderAmount": amount,
	}
	if note := notes[p.rng.IntN(len(notes))]; note != "" {
		o["packageNote"] = note
	}
	switch number % 4 {
	case 0:
		o["payment"] = object{"type": "Cash", "collectionAmount": amount}
	case 1:
		o["payment"] = object{"type": "Card", "collectionAmount": amount}
	case 2:
		o["payment"] = object{"type": "Prepaid"}
	}
	return o
}

// addRepeats sends n of the planned requests again, one of three ways, after
// the ones they repeat.
func (p *plan) addRepeats(n int) {
	for i := range n {
		var original *request
		for original == nil || original.wantStatus != http.StatusCreated || original.original != nil {
			original = p.requests[p.rng.IntN(len(p.requests))]
		}
		again := &request{key: original.key, externalID: original.externalID, body: original.body, original: original, done: make(chan struct{})}
		switch i % 3 {
		case 0: // the same key and body: the original answer
			again.wantStatus = http.StatusCreated
		case 1: // the same key, another body
			again.body = append(slices.Clone(original.body), ' ')
			again.wantStatus, again.wantCode = http.StatusConflict, "DUPLICATE_ORDER"
		case 2: // another key, the same external id
			again.key = "again-" + original.externalID
			again.wantStatus, again.wantCode = http.StatusConflict, "DUPLICATE_ORDER"
		}
		at := slices.Index(p.requests, original) + 1
		at += p.rng.IntN(len(p.requests) - at + 1)
		p.requests = slices.Insert(p.requests, at, again)
	}
}

// accepted are the distinct orders that the service took.
func (p *plan) accepted() (orders []*request) {
	for _, r := range p.requests {
		if r.original == nil && r.result.orderID != "" {
			orders = append(orders, r)
		}
	}
	return orders
}

func encode(o object) []byte {
	body, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and finite numbers always encode
	}
	return body
}
