package delivery

import "time"

// Store is one restaurant branch of an account.
type Store struct {
	Account    AccountID
	ExternalID string
	State      StoreState
	TaxNumber  string // 10 or 11 digits
	Name       string
	Phone      string // 10 digits
	Address    string
	Point      Point
	SubRegion  string
	Fleet      FleetID // zero without a fleet
	FleetName  string  // as of the last write; see FleetSnapshot.NameFleetOf
	// ClosingDate is the local day at whose end a migrating store is deactivated;
	// zero: not migrating. Only an Active store has one.
	ClosingDate time.Time
	UpdatedAt   time.Time
	Revision    uint64 // counts the stored changes; a writer that read another one decides again
}

// Account is a vendor without credentials. What the admin API shows as it is has a tag.
type Account struct {
	ID             AccountID   `json:"-"`
	Name           string      `json:"name"`
	Suspended      bool        `json:"suspended"`
	MutedEvents    []EventType `json:"mutedEvents,omitempty"` // some of MutableEvents, of which no webhook is sent
	Limits         Limits      `json:"limits"`
	CreatedAt      time.Time   `json:"-"`
	ExcessSince    time.Time   `json:"-"` // when sustained excess began (spec, "Limits", rule 3); zero: none
	EarlierSecrets []time.Time `json:"-"` // until when earlier client secrets work, or worked
	Revision       uint64      `json:"-"` // counts the stored changes, like a store's
	NameRevision   uint64      `json:"-"` // the revision with which it got its name; the ledger's
}

// Window is "Count requests in any Seconds seconds"; none with a zero Count.
type Window struct {
	Count   int `json:"count"`
	Seconds int `json:"seconds"`
}

// EndpointLimit is what one endpoint allows one account.
type EndpointLimit struct {
	Sustained Window `json:"sustained,omitzero"`
	Burst     Window `json:"burst,omitzero"`
}

// Limits are an account's limits (spec, "Limits"; decisions, "Limits and idempotency").
type Limits struct {
	Orders      EndpointLimit `json:"orders"`
	OrderStatus EndpointLimit `json:"orderStatus"`
	Cancel      EndpointLimit `json:"cancel"`
	Stores      EndpointLimit `json:"stores"`
	Token       EndpointLimit `json:"token"`

	// MaxStores bounds the account's stores, deactivated ones included: no store is
	// ever removed. Zero: no bound.
	MaxStores int `json:"maxStores,omitzero"`
	// MaxPendingStores bounds how many of the account's stores wait for the answer of one
	// fleet, so that no vendor buries another's in a fleet's list. Zero: no bound.
	MaxPendingStores int `json:"maxPendingStores,omitzero"`
}

// DefaultLimits are the spec's figures. Stores is a bucket of Burst.Count refilled at
// Sustained.Count per Sustained.Seconds, plus the exact window Burst.
func DefaultLimits() Limits {
	return Limits{
		Orders:      EndpointLimit{Sustained: Window{600, 60}, Burst: Window{120, 10}},
		OrderStatus: EndpointLimit{Sustained: Window{3000, 60}},
		Cancel:      EndpointLimit{Sustained: Window{600, 60}},
		Stores:      EndpointLimit{Sustained: Window{60, 60}, Burst: Window{200, 10}},
		Token:       EndpointLimit{Sustained: Window{60, 3600}},

		MaxStores:        10_000,
		MaxPendingStores: 500,
	}
}

// PollInterval is the least time between reads of one order.
const PollInterval = 10 * time.Second

// MaxStoreLimit is the highest MaxStores and MaxPendingStores that an account can have.
const MaxStoreLimit = 1_000_000

// Ranges of a configured window, whose figures fit the ledger's windows.
const (
	MaxWindowCount   = 1_000_000
	MaxWindowSeconds = 86_400
	// MaxBucket bounds Burst.Count times Sustained.Seconds of the stores' limit:
	// the ledger counts millionths of it, exactly up to 2^53.
	MaxBucket = 9_000_000_000
)

// Fleet is a courier fleet as every gateway knows it. What the admin API shows as it is has
// a tag.
type Fleet struct {
	ID              FleetID `json:"-"`
	Name            string  `json:"name"`
	SubRegion       string  `json:"subRegion"`
	DeliveryMinutes int     `json:"avgDeliveryMinutes"`
	PickupMinutes   int     `json:"avgPickupMinutes"`
	Suspended       bool    `json:"suspended"` // no new orders; couriers go on reporting
	Disabled        bool    `json:"disabled"`  // nothing at all: no token and no request either
	// RequestsPerSecond bounds the fleet's requests on the average, over all gateways.
	RequestsPerSecond int       `json:"requestsPerSecond"`
	Couriers          int       `json:"-"` // how many couriers the fleet has; -1, unknown, is available
	Coverage          *Coverage `json:"-"`
}

// Terms is what an order keeps of the fleet.
func (f *Fleet) Terms() FleetTerms {
	return FleetTerms{ID: f.ID, Name: f.Name, PickupMinutes: f.PickupMinutes, DeliveryMinutes: f.DeliveryMinutes}
}

// Available reports whether the fleet takes new orders.
func (f *Fleet) Available() bool { return !f.Suspended && !f.Disabled && f.Couriers != 0 }

// The limit of a fleet that has none of its own, and the highest that one can have.
const (
	DefaultFleetRequests = 200
	MaxFleetRequests     = 10_000
)

// DefaultPickupMinutes are the pickup minutes of a fleet that names none.
const DefaultPickupMinutes = 10

// EventType names a webhook's event (spec, "Event types").
type EventType string

// The event types. WebhookTest is the decisions' ("Webhooks").
const (
	StatusChanged    EventType = "delivery.status_changed"
	CourierChanged   EventType = "delivery.courier_changed"
	ETAChanged       EventType = "delivery.eta_changed"
	StoreActivated   EventType = "store.activated"
	StoreMigrating   EventType = "store.migrating"
	StoreDeactivated EventType = "store.deactivated"
	StoreRejected    EventType = "store.rejected" // decisions, "States"
	PaymentOverdue   EventType = "fleet.payment_overdue"
	WebhookTest      EventType = "webhook.test"
	ReportAvailable  EventType = "report.available" // of FinanceAccount only
)

// MutableEvents are the types that an operator can turn off for an account: what happens between two
// statuses.
var MutableEvents = []EventType{CourierChanged, ETAChanged}

// Update is a fleet's report about one order.
type Update struct {
	Order    OrderID
	Fleet    FleetID
	Kind     UpdateKind
	Status   Status        // for KindStatus; Assigned for KindAccept
	At       time.Time     // when it happened, never zero
	Courier  Courier       // for KindAccept and KindSwap
	ETA      time.Time     // zero: not given
	Location Location      // where the courier was; zero: not given
	Failure  FailureReason // for Failed
}

// UpdateKind is what a fleet reports about a job.
type UpdateKind uint8

// The kinds. The numbers are stored; never renumber them.
const (
	KindAccept UpdateKind = 1 + iota
	KindStatus
	KindSwap
)
