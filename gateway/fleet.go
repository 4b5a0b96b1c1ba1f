package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
)

func fleetRoutes() routes {
	const root = "/api/fleet/v1"
	return slices.Concat(
		group(root, fleetOnly, nil,
			route{method: get, pattern: "/stores", name: "fleet_stores_list", handle: (*gateway).listStores},
			route{method: get, pattern: "/jobs", name: "fleet_jobs_list", handle: (*gateway).listJobs},
			route{method: post, pattern: "/locations", name: "fleet_locations", body: requiredBody, maxBody: noOwnLimit, handle: (*gateway).reportLocations},
			route{method: put, pattern: "/availability", name: "fleet_availability", body: requiredBody, handle: (*gateway).setAvailability},
		),
		group(root+"/stores/{}/{}", fleetOnly, (*requestContext).fleetStoreInPath,
			route{method: post, pattern: "/confirm", name: "fleet_stores_confirm", body: optionalBody, handle: (*gateway).confirmStore},
			route{method: post, pattern: "/reject", name: "fleet_stores_reject", body: optionalBody, handle: (*gateway).rejectStore},
		),
		group(root+"/jobs/{}", fleetOnly, (*requestContext).jobInPath,
			route{method: get, name: "fleet_jobs_read", handle: (*gateway).readJob},
			route{method: post, pattern: "/accept", name: "fleet_jobs_accept", body: requiredBody, handle: (*gateway).acceptJob},
			route{method: post, pattern: "/status", name: "fleet_jobs_status", body: requiredBody, handle: (*gateway).reportStatus},
			route{method: put, pattern: "/courier", name: "fleet_jobs_courier", body: requiredBody, handle: (*gateway).swapCourier},
		),
		group(root, public, nil, tokenRoute("fleet_token", (*gateway).fleetToken)),
	)
}

type fleetStoreView struct {
	AccountID       string      `json:"accountId"`
	ExternalStoreID string      `json:"externalStoreId"`
	Status          string      `json:"status"`
	Name            string      `json:"name"`
	TaxNumber       string      `json:"taxNumber"`
	Phone           string      `json:"phone"`
	Address         addressView `json:"address"`
	SubRegion       string      `json:"subRegion"`
	ClosingDate     string      `json:"closingDate,omitempty"`
	UpdatedAt       string      `json:"updatedAt"`
}

type addressView struct {
	Text string `json:"text"`
	delivery.Point
}

func viewFleetStore(s *delivery.Store) fleetStoreView {
	v := fleetStoreView{
		AccountID: s.Account.String(), ExternalStoreID: s.ExternalID, Status: s.State.String(),
		Name: s.Name, TaxNumber: s.TaxNumber, Phone: s.Phone,
		Address:   addressView{s.Address, s.Point},
		SubRegion: s.SubRegion, UpdatedAt: formatTime(s.UpdatedAt),
	}

	if !s.ClosingDate.IsZero() {
		v.ClosingDate = s.ClosingDate.In(delivery.Istanbul).Format(time.DateOnly)
	}

	return v
}

// listStores is GET /stores?status=&cursor=, in every state without a status; the last page
// has an empty cursor. The limit counts the stores before they are read. Stores on a server that does
// not answer are left out, and the answer says that it is incomplete.
func (g *gateway) listStores(x *requestContext) error {
	name := x.query("status")
	state, err := delivery.ParseStoreState(name)
	if name != "" && err != nil {
		return delivery.Invalid("status", "must be AwaitingFleet, AwaitingFleetApproval, Active or Deactivated")
	}

	var gaps ledger.Gaps
	page, err := x.ledger.Stores.PageOfFleet(g.work, x.fleet, state, x.query("cursor"), listedAtOnce)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	err = x.ledger.Fleets.Charge(g.work, x.fleet, page.Len()/countedAsOne, x.now)
	if err != nil {
		return err
	}

	stores, err := x.ledger.Stores.ReadPage(g.work, page)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	return x.okParts(map[string]any{"stores": viewAll(stores, viewFleetStore), "cursor": page.Next}, gaps)
}

var errNotYourStore = delivery.Refuse(delivery.CodeStoreNotFound, "no such store is attached to your fleet")

// fleetStoreInPath reads the path's account and store; what is no id names none.
func (x *requestContext) fleetStoreInPath() error {
	if x.accountInPath() != nil || x.storeInPath() != nil {
		return errNotYourStore
	}
	return nil
}

// confirmation is a fleet's yes: the store becomes Active, and store.activated
// goes out with the same write. Confirming again announces nothing.
func confirmation(fleet delivery.FleetID, _ string, now time.Time) storeMove {
	return func(s *delivery.Store, _ bool) (accounts.Notice, bool, error) {
		if s.Fleet != fleet {
			return accounts.Notice{}, false, errNotYourStore
		}
		if s.State == delivery.Active {
			return accounts.Notice{}, false, nil
		}

		notice := accounts.StoreNotice(s, delivery.StoreActivated, now, delivery.AppendStoreActivated(nil, s.ExternalID, s.Fleet, s.FleetName))
		return notice, true, delivery.ConfirmStore(s, now)
	}
}

// rejection is a fleet's no: the vendor has to choose again, and store.rejected goes
// out with the same write.
func rejection(fleet delivery.FleetID, reason string, now time.Time) storeMove {
	return func(s *delivery.Store, retry bool) (accounts.Notice, bool, error) {
		if retry && s.State == delivery.AwaitingFleet {
			return accounts.Notice{}, false, nil // an earlier try was written, and its answer lost
		}
		if s.Fleet != fleet {
			return accounts.Notice{}, false, errNotYourStore
		}

		notice := accounts.StoreNotice(s, delivery.StoreRejected, now, delivery.AppendStoreRejected(nil, s.ExternalID, s.Fleet, s.FleetName, reason))
		return notice, true, delivery.RejectStore(s, now)
	}
}

func (g *gateway) confirmStore(x *requestContext) error {
	return g.answerPending(x, confirmation(x.fleet, "", x.now))
}

// rejectStore is POST /stores/{accountId}/{externalStoreId}/reject {reason?}.
func (g *gateway) rejectStore(x *requestContext) error {
	var body struct {
		Reason delivery.Text `json:"reason"`
	}
	f := x.form(&body)
	reason := f.Line("reason", body.Reason, false, 0, maxReason)
	if err := f.err(); err != nil {
		return err
	}
	return g.answerPending(x, rejection(x.fleet, reason, x.now))
}

// maxReason is how long a fleet's reason may be, in code points.
const maxReason = 256

func (g *gateway) answerPending(x *requestContext, move storeMove) error {
	store, err := g.changeStore(x, move)
	if delivery.CodeOf(err) == delivery.CodeStoreNotFound {
		return errNotYourStore
	}
	return show(x, viewFleetStore)(store, err)
}

// availabilityCounts is what a change costs of the limit: every gateway reads the small values of
// all fleets, some kilobytes.
const availabilityCounts = 20

// setAvailability is PUT /availability {couriers}: at 0 new orders get FLEET_UNAVAILABLE.
func (g *gateway) setAvailability(x *requestContext) error {
	var body struct {
		Couriers delivery.Number `json:"couriers"`
	}
	f := x.form(&body)
	f.Require("couriers", body.Couriers.Set)
	couriers := f.Whole("couriers", body.Couriers, 0, 1_000_000)
	if err := f.err(); err != nil {
		return err
	}

	// The same number again is one request like any other: it changes nothing.
	before, err := x.ledger.Fleets.Couriers(g.work, x.fleet)
	if err != nil {
		return err
	}

	if before != couriers {
		if err := x.ledger.Fleets.Charge(g.work, x.fleet, availabilityCounts, x.now); err != nil {
			return err
		}
		if err := x.ledger.Fleets.SetCouriers(g.work, x.fleet, couriers); err != nil {
			return err
		}
		g.refreshControls(x)
	}

	return x.okJSON(map[string]int{"couriers": couriers})
}

// listedAtOnce is how many jobs, or stores, a page of a list has.
const listedAtOnce = 100

// countedAsOne is how many positions, jobs or stores count as one request more.
const countedAsOne = 10

// jobView is an order as a courier needs it.
type jobView struct {
	OrderID         string              `json:"orderId"`
	ExternalOrderID string              `json:"externalOrderId"`
	Status          string              `json:"status"`
	Version         uint64              `json:"version"`
	Store           jobStoreView        `json:"store"`
	Recipient       *delivery.Recipient `json:"recipient,omitempty"` // these two until the order shrinks
	Dropoff         *delivery.Dropoff   `json:"dropoff,omitempty"`
	PackageNote     string              `json:"packageNote,omitempty"`
	Payment         paymentView         `json:"payment"`
	ReadyAt         string              `json:"readyAt"`
	CreatedAt       string              `json:"createdAt"`
	UpdatedAt       string              `json:"updatedAt"`
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
		Store:       jobStoreView{AccountID: o.Account.String(), ExternalStoreID: o.ExternalStoreID},
		PackageNote: o.PackageNote,
		Payment:     paymentView{Type: o.Payment.Type.String(), CollectionAmount: json.Number(o.Payment.CollectionAmount.String())},
		ReadyAt:     formatTime(o.ReadyAt), CreatedAt: formatTime(o.CreatedAt), UpdatedAt: formatTime(o.UpdatedAt()),
	}

	if o.Payment.Type != delivery.Prepaid {
		v.Payment.OrderAmount = json.Number(o.OrderAmount.String())
	}

	if !o.Shrunk() {
		recipient := o.Recipient
		if o.Status.Terminal() && now.Sub(o.UpdatedAt()) >= phoneShownFor {
			recipient.Phone = ""
		}
		v.Recipient, v.Dropoff = &recipient, &o.Dropoff
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

// listedStatuses are those whose orders a fleet can list (decisions, "Private APIs").
var listedStatuses = []delivery.Status{
	delivery.Searching, delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Cancelled,
}

// listJobs is GET /jobs?status=&cursor=; the last page has an empty cursor. The limit counts
// the jobs, each with its store, before they are read. Jobs on a server that does not answer are left
// out, and the answer says that it is incomplete.
func (g *gateway) listJobs(x *requestContext) error {
	status, err := delivery.ParseStatus(cmp.Or(x.query("status"), "Searching"))
	if err != nil || !slices.Contains(listedStatuses, status) {
		return delivery.Invalid("status", "must be Searching, Assigned, PickingUp, PickedUp, Delivering or Cancelled")
	}

	var gaps ledger.Gaps
	ids, next, err := x.ledger.Orders.JobIDs(g.work, x.fleet, status, x.query("cursor"), listedAtOnce)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	err = x.ledger.Fleets.Charge(g.work, x.fleet, len(ids)/countedAsOne, x.now)
	if err != nil {
		return err
	}

	orders, err := x.ledger.Orders.ReadJobs(g.work, ids, status)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	stores, err := x.storesOf(g.work, orders...)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	view := func(o *delivery.Order) jobView { return viewJob(o, stores[accounts.StoreOf(o)], x.now) }

	return x.okParts(map[string]any{"jobs": viewAll(orders, view), "cursor": next}, gaps)
}

// storesOf reads the stores of some orders, each once. A store that is gone, or cannot be read, is
// missing: it hides no job.
func (x *requestContext) storesOf(ctx context.Context, orders ...*delivery.Order) (map[accounts.StoreName]*delivery.Store, error) {
	var names []accounts.StoreName
	for _, o := range orders {
		if name := accounts.StoreOf(o); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	stores, _, err := x.ledger.Stores.GetAll(ctx, names)
	return stores, err
}

var errNotYourJob = delivery.Refuse(delivery.CodeOrderNotFound, "your fleet has no such job")

func (x *requestContext) jobInPath() error {
	return idInPath(x, delivery.ParseOrderID, &x.order, errNotYourJob)
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

	return x.okJSON(viewJob(order, stores[accounts.StoreOf(order)], x.now))
}
