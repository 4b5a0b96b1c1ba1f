package main

import (
	"encoding/json"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// jobsPerPage is how many jobs one answer of GET /jobs holds.
const jobsPerPage = 100

// countedAsOne is how many positions sent, jobs or stores listed count as one request
// more of a fleet.
const countedAsOne = 10

// storeReads is how many stores of a page are read at once.
const storeReads = 8

// jobView is an order as a courier needs it.
type jobView struct {
	OrderID         string        `json:"orderId"`
	ExternalOrderID string        `json:"externalOrderId"`
	Status          string        `json:"status"`
	Version         uint64        `json:"version"`
	Store           jobStoreView  `json:"store"`
	Recipient       recipientView `json:"recipient"`
	Dropoff         dropoffView   `json:"dropoff"`
	PackageNote     string        `json:"packageNote,omitempty"`
	Payment         paymentView   `json:"payment"`
	ReadyAt         string        `json:"readyAt"`
	CreatedAt       string        `json:"createdAt"`
	UpdatedAt       string        `json:"updatedAt"`
	Courier         *courierView  `json:"courier,omitempty"`
	FailureReason   string        `json:"failureReason,omitempty"`
}

// jobStoreView is where the package is collected. Only the id is certain: the
// rest is the store as it is now.
type jobStoreView struct {
	AccountID       string   `json:"accountId"`
	ExternalStoreID string   `json:"externalStoreId"`
	Name            string   `json:"name,omitempty"`
	Phone           string   `json:"phone,omitempty"`
	Address         string   `json:"address,omitempty"`
	Latitude        *float64 `json:"latitude,omitempty"`
	Longitude       *float64 `json:"longitude,omitempty"`
}

type recipientView struct {
	Name  string `json:"name"`
	Phone string `json:"phone,omitempty"`
}

type dropoffView struct {
	Text       string  `json:"text"`
	Latitude   float64 `json:"latitude"`
	Longitude  float64 `json:"longitude"`
	BuildingNo string  `json:"buildingNo,omitempty"`
	DoorNo     string  `json:"doorNo,omitempty"`
	Floor      string  `json:"floor,omitempty"`
	Note       string  `json:"note,omitempty"`
}

// paymentView is passed on as the vendor gave it, but for the amount of an order
// that is paid already; amounts are exact decimals.
type paymentView struct {
	Type             string      `json:"type,omitempty"`
	CollectionAmount json.Number `json:"collectionAmount,omitempty"`
	OrderAmount      json.Number `json:"orderAmount,omitempty"`
}

// courierView shows the fleet its own courier in full.
type courierView struct {
	Name        string `json:"name"`
	Phone       string `json:"phone"`
	VehicleType string `json:"vehicleType"`
}

// phoneShownFor is how long after an order's end its fleet still sees the customer's
// phone: for what was left behind, or was not paid.
const phoneShownFor = 3 * time.Hour

func viewJob(o *delivery.Order, store *delivery.Store, now time.Time) jobView {
	v := jobView{
		OrderID: o.ID.String(), ExternalOrderID: o.ExternalOrderID, Status: o.Status.String(), Version: o.Version,
		Store:     jobStoreView{AccountID: o.Account.String(), ExternalStoreID: o.ExternalStoreID},
		Recipient: recipientView{Name: o.Recipient.Name, Phone: o.Recipient.Phone},
		Dropoff: dropoffView{
			Text: o.Dropoff.Text, Latitude: o.Dropoff.Point.Latitude, Longitude: o.Dropoff.Point.Longitude,
			BuildingNo: o.Dropoff.BuildingNo, DoorNo: o.Dropoff.DoorNo, Floor: o.Dropoff.Floor, Note: o.Dropoff.Note,
		},
		PackageNote: o.PackageNote,
		Payment: paymentView{
			Type:             o.Payment.Type.String(),
			CollectionAmount: json.Number(o.Payment.CollectionAmount.String()),
		},
		ReadyAt: formatTime(o.ReadyAt), CreatedAt: formatTime(o.CreatedAt), UpdatedAt: formatTime(o.UpdatedAt()),
	}
	if o.Payment.Type != delivery.Prepaid {
		v.Payment.OrderAmount = json.Number(o.OrderAmount.String())
	}
	if o.Status.Terminal() && now.Sub(o.UpdatedAt()) >= phoneShownFor {
		v.Recipient.Phone = ""
	}
	if store != nil {
		v.Store.Name, v.Store.Phone, v.Store.Address = store.Name, store.Phone, store.Address
		v.Store.Latitude, v.Store.Longitude = &store.Point.Latitude, &store.Point.Longitude
	}
	if !o.Courier.IsZero() {
		v.Courier = &courierView{Name: o.Courier.Name, Phone: o.Courier.Phone, VehicleType: o.Courier.VehicleType}
	}
	if n := len(o.Changes); o.Status == delivery.Failed && n > 0 {
		v.FailureReason = string(o.Changes[n-1].Failure)
	}
	return v
}

// listedStatuses are those whose orders a fleet can list (design section 5).
var listedStatuses = []delivery.Status{
	delivery.Searching, delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Cancelled,
}

// listJobs is GET /jobs?status=Searching&cursor=; the cursor of the answer is
// empty at the end.
func (g *gateway) listJobs(x *requestContext) error {
	status := delivery.Searching
	if name := x.query("status"); name != "" {
		var err error
		if status, err = delivery.ParseStatus(name); err != nil || !slices.Contains(listedStatuses, status) {
			return invalid("status", "must be Searching, Assigned, PickingUp, PickedUp, Delivering or Cancelled")
		}
	}
	orders, next, err := x.ledger.Orders.Jobs(g.work, x.fleet, status, x.query("cursor"), jobsPerPage)
	if err != nil {
		return err
	}
	x.ledger.Fleets.Owe(x.fleet, len(orders)/countedAsOne)
	stores, err := g.storesOf(x.ledger, orders)
	if err != nil {
		return err
	}
	views := make([]jobView, len(orders))
	for i, o := range orders {
		views[i] = viewJob(o, stores[storeOf(o)], x.now)
	}
	return x.okJSON(map[string]any{"jobs": views, "cursor": next})
}

// storeKey names a store over all accounts.
type storeKey struct {
	account    delivery.AccountID
	externalID string
}

func storeOf(o *delivery.Order) storeKey { return storeKey{o.Account, o.ExternalStoreID} }

// storesOf reads the stores of a page of orders, each once; one that is gone is
// nil.
func (g *gateway) storesOf(l *ledger.Ledger, orders []*delivery.Order) (map[storeKey]*delivery.Store, error) {
	var keys []storeKey
	for _, o := range orders {
		if key := storeOf(o); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	found := make([]*delivery.Store, len(keys))
	var group errgroup.Group
	group.SetLimit(storeReads)
	for i, key := range keys {
		group.Go(func() (err error) {
			found[i], err = g.storeIfAny(l, key.account, key.externalID)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	stores := make(map[storeKey]*delivery.Store, len(keys))
	for i, key := range keys {
		stores[key] = found[i]
	}
	return stores, nil
}

var errNotYourJob = delivery.Refuse(delivery.CodeOrderNotFound, "your fleet has no such job")

// jobInPath reads the path's order id; what is no order id names none.
func (x *requestContext) jobInPath() (err error) {
	if x.order, err = delivery.ParseOrderID(x.param(0)); err != nil {
		return errNotYourJob
	}
	return nil
}

// readJob is GET /jobs/{orderId}. Another fleet's order is as unknown as one that
// does not exist.
func (g *gateway) readJob(x *requestContext) error {
	order, err := x.ledger.Orders.Get(g.work, x.order)
	if delivery.CodeOf(err) == delivery.CodeOrderNotFound || err == nil && order.Fleet.ID != x.fleet {
		return errNotYourJob
	}
	if err != nil {
		return err
	}
	store, err := g.storeIfAny(x.ledger, order.Account, order.ExternalStoreID)
	if err != nil {
		return err
	}
	return x.okJSON(viewJob(order, store, x.now))
}
