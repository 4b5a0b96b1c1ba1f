package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// jobsPerPage is how many jobs one answer of GET /jobs holds.
const jobsPerPage = 100

// countedAsOne is how many positions, jobs or stores count as one request more.
const countedAsOne = 10

// jobView is an order as a courier needs it.
type jobView struct {
	OrderID         string             `json:"orderId"`
	ExternalOrderID string             `json:"externalOrderId"`
	Status          string             `json:"status"`
	Version         uint64             `json:"version"`
	Store           jobStoreView       `json:"store"`
	Recipient       delivery.Recipient `json:"recipient"`
	Dropoff         delivery.Dropoff   `json:"dropoff"`
	PackageNote     string             `json:"packageNote,omitempty"`
	Payment         paymentView        `json:"payment"`
	ReadyAt         string             `json:"readyAt"`
	CreatedAt       string             `json:"createdAt"`
	UpdatedAt       string             `json:"updatedAt"`
	// Courier is the fleet's own, in full.
	Courier       *delivery.Courier `json:"courier,omitempty"`
	FailureReason string            `json:"failureReason,omitempty"`
}

// jobStoreView has the store as it is now; only the ids are certain.
type jobStoreView struct {
	AccountID       string `json:"accountId"`
	ExternalStoreID string `json:"externalStoreId"`
	Name            string `json:"name,omitempty"`
	Phone           string `json:"phone,omitempty"`
	Address         string `json:"address,omitempty"`
	*delivery.Point
}

// paymentView is passed on as the vendor gave it, but for the amount of an order
// that is paid already; amounts are exact decimals.
type paymentView struct {
	Type             string      `json:"type,omitempty"`
	CollectionAmount json.Number `json:"collectionAmount,omitempty"`
	OrderAmount      json.Number `json:"orderAmount,omitempty"`
}

// phoneShownFor is how long after an order's end its fleet sees the customer's phone.
const phoneShownFor = 3 * time.Hour

func viewJob(o *delivery.Order, store *delivery.Store, now time.Time) jobView {
	v := jobView{
		OrderID: o.ID.String(), ExternalOrderID: o.ExternalOrderID, Status: o.Status.String(), Version: o.Version,
		Store:     jobStoreView{AccountID: o.Account.String(), ExternalStoreID: o.ExternalStoreID},
		Recipient: o.Recipient, Dropoff: o.Dropoff, PackageNote: o.PackageNote,
		Payment: paymentView{Type: o.Payment.Type.String(), CollectionAmount: json.Number(o.Payment.CollectionAmount.String())},
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
		v.Store.Point = &store.Point
	}
	if !o.Courier.IsZero() {
		v.Courier = &o.Courier
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

// listJobs is GET /jobs?status=&cursor=; the last page has an empty cursor.
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
	stores, err := x.storesOf(g.work, orders...)
	if err != nil {
		return err
	}
	view := func(o *delivery.Order) jobView { return viewJob(o, stores[storeOf(o)], x.now) }
	return x.okJSON(map[string]any{"jobs": viewAll(orders, view), "cursor": next})
}

// storesOf reads the stores of some orders, each once. One that is gone is absent.
func (x *requestContext) storesOf(ctx context.Context, orders ...*delivery.Order) (map[ledger.StoreName]*delivery.Store, error) {
	var names []ledger.StoreName
	for _, o := range orders {
		if name := storeOf(o); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	stores, unreadable, err := x.ledger.Stores.GetAll(ctx, names)
	return stores, cmp.Or(err, errors.Join(unreadable...))
}

func storeOf(o *delivery.Order) ledger.StoreName {
	return ledger.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}
}

var errNotYourJob = delivery.Refuse(delivery.CodeOrderNotFound, "your fleet has no such job")

// jobInPath reads the path's order id; what is no order id names none.
func (x *requestContext) jobInPath() (err error) {
	if x.order, err = delivery.ParseOrderID(x.param(0)); err != nil {
		return errNotYourJob
	}
	return nil
}

// readJob is GET /jobs/{orderId}. Another fleet's order is unknown.
func (g *gateway) readJob(x *requestContext) error {
	order, err := x.ledger.Orders.Get(g.work, x.order)
	if delivery.CodeOf(err) == delivery.CodeOrderNotFound || err == nil && order.Fleet.ID != x.fleet {
		return errNotYourJob
	}
	if err != nil {
		return err
	}
	stores, err := x.storesOf(g.work, order)
	if err != nil {
		return err
	}
	return x.okJSON(viewJob(order, stores[storeOf(order)], x.now))
}
