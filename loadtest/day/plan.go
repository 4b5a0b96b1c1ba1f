package day

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
)

// store is one branch of the vendor.
type store struct {
	ID        string `json:"-"`
	TaxNumber string `json:"taxNumber"`
	Name      string `json:"name"`
	Phone     string `json:"phone"`
	Address   struct {
		Text      string  `json:"text"`
		Latitude  float64 `json:"latitude"`
		Longitude float64 `json:"longitude"`
	} `json:"address"`
	FleetID string `json:"fleetId,omitempty"`
}

// order is the body of POST /orders; what is left out is left out of the JSON.
type order struct {
	ExternalStoreID string    `json:"externalStoreId,omitempty"`
	ExternalOrderID string    `json:"externalOrderId,omitempty"`
	OrderedAt       string    `json:"orderedAt,omitempty"`
	ReadyAt         string    `json:"readyAt,omitempty"`
	Recipient       recipient `json:"recipient"`
	Dropoff         dropoff   `json:"dropoff"`
	PackageNote     string    `json:"packageNote,omitempty"`
	OrderAmount     number    `json:"orderAmount,omitempty"`
	Payment         *payment  `json:"payment,omitempty"`
}

type recipient struct {
	Name  string `json:"name"`
	Phone string `json:"phone"`
}

type dropoff struct {
	Text       string  `json:"text"`
	Latitude   float64 `json:"latitude"`
	Longitude  float64 `json:"longitude"`
	BuildingNo string  `json:"buildingNo,omitempty"`
	DoorNo     string  `json:"doorNo,omitempty"`
	Floor      string  `json:"floor,omitempty"`
	Note       string  `json:"note,omitempty"`
}

type payment struct {
	Type             string `json:"type,omitempty"`
	CollectionAmount number `json:"collectionAmount,omitempty"`
}

// number is a decimal as it stands in the JSON.
type number = json.Number

// request is one planned POST /orders with the answer it must get.
type request struct {
	key        string // X-Idempotency-Key
	body       []byte
	externalID string
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

// plan is a whole day before it is played.
type plan struct {
	stores   []store
	requests []*request
}

// newPlan lays out orders distinct orders and some repetitions, the same ones
// for the same seed and prefix. prefix begins every external id.
func newPlan(orders int, seed uint64, prefix string) *plan {
	b := &planner{rng: rand.New(rand.NewPCG(seed, 0)), prefix: prefix}
	b.addStores()
	kinds := mix(orders)
	b.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds {
		b.add(kind)
	}
	b.addRepeats(max(orders/20, 3))
	return &b.plan
}

// mix shares the orders out: of every 100 about 8 break a rule, 8 fail, 10 are
// cancelled, 4 try the receiver, and the rest is delivered. The kinds of each
// class take turns.
func mix(orders int) []func(*planner, *order, *request) {
	kinds := make([]func(*planner, *order, *request), 0, orders)
	for i := range orders {
		switch turn := i / 25; i % 25 {
		case 3, 13:
			kinds = append(kinds, invalidKinds[(2*turn+i%25/10)%len(invalidKinds)])
		case 6, 16:
			kinds = append(kinds, failing((2*turn+i%25/10)%len(failures)))
		case 8, 18:
			kinds = append(kinds, cancelled((2*turn+i%25/10)%len(cancellable)))
		case 20:
			kinds = append(kinds, receiverKinds[turn%len(receiverKinds)])
		default:
			kinds = append(kinds, delivered)
		}
	}
	return kinds
}

type planner struct {
	plan
	rng    *rand.Rand
	prefix string
	count  int
}

func (b *planner) addStores() {
	for _, city := range cities() {
		first := slices.IndexFunc(places, func(p place) bool { return p.city == city })
		for i, p := range places[first : first+2] {
			s := store{
				ID:        fmt.Sprintf("%sS-%s-%d", b.prefix, city, i+1),
				TaxNumber: strconv.Itoa(1000000000 + b.rng.IntN(8999999999)),
				Name:      "Anadolu Sofrası " + p.district,
				Phone:     fmt.Sprintf("0212%07d", b.rng.IntN(10000000)),
			}
			s.Address.Text = fmt.Sprintf("%s No: %d, %s/%s", p.street, 1+b.rng.IntN(120), p.district, p.city)
			s.Address.Latitude, s.Address.Longitude = p.latitude, p.longitude
			b.stores = append(b.stores, s)
		}
	}
}

// add draws one order and lets kind make of it what it is.
func (b *planner) add(kind func(*planner, *order, *request)) {
	b.count++
	o := b.draw()
	r := &request{
		key:        o.ExternalOrderID, // the spec's suggestion
		externalID: o.ExternalOrderID,
		payment:    "none",
		wantStatus: http.StatusCreated,
		wantEnd:    "Delivered",
		done:       make(chan struct{}),
	}
	if b.count%10 == 0 {
		r.key = "key-" + r.externalID // a key of its own is as good
	}
	if o.Payment != nil {
		r.payment = o.Payment.Type
	}
	kind(b, &o, r)
	if r.body == nil {
		r.body = encode(o)
	}
	b.requests = append(b.requests, r)
}

func (b *planner) draw() order {
	p := places[b.rng.IntN(len(places))]
	door := p.near(b.rng)
	amount := 80 + b.rng.IntN(170000)
	o := order{
		ExternalStoreID: b.storeIn(p.city),
		ExternalOrderID: fmt.Sprintf("%s%05d", b.prefix, b.count),
		Recipient: recipient{
			Name:  firstNames[b.rng.IntN(len(firstNames))] + " " + surnames[b.rng.IntN(len(surnames))],
			Phone: []string{"", "0", "+90", "+900"}[b.rng.IntN(4)] + fmt.Sprintf("5%09d", b.rng.IntN(1e9)),
		},
		Dropoff: dropoff{
			Text:     fmt.Sprintf("%s No: %d, %s/%s", door.street, 1+b.rng.IntN(200), door.district, door.city),
			Latitude: door.latitude, Longitude: door.longitude,
			BuildingNo: strconv.Itoa(1 + b.rng.IntN(200)), DoorNo: strconv.Itoa(1 + b.rng.IntN(40)), Floor: strconv.Itoa(b.rng.IntN(12)),
		},
		PackageNote: notes[b.rng.IntN(len(notes))],
		OrderAmount: number(fmt.Sprintf("%d.%02d", amount/100, amount%100)),
	}
	switch b.count % 4 {
	case 0:
		o.Payment = &payment{Type: "Cash", CollectionAmount: o.OrderAmount}
	case 1:
		o.Payment = &payment{Type: "Card", CollectionAmount: o.OrderAmount}
	case 2:
		o.Payment = &payment{Type: "Prepaid"}
	}
	return o
}

func (b *planner) storeIn(city string) string {
	first := 2 * slices.Index(cities(), city)
	return b.stores[first+b.rng.IntN(2)].ID
}

// addRepeats sends n of the planned requests again, one of three ways, after
// the ones they repeat.
func (b *planner) addRepeats(n int) {
	for i := range n {
		var original *request
		for original == nil || original.wantStatus != http.StatusCreated || original.original != nil {
			original = b.requests[b.rng.IntN(len(b.requests))]
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
		at := slices.Index(b.requests, original) + 1
		at += b.rng.IntN(len(b.requests) - at + 1)
		b.requests = slices.Insert(b.requests, at, again)
	}
}

func encode(o order) []byte {
	body, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and finite numbers always encode
	}
	return body
}
