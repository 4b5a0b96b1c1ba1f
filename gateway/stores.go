package main

import (
	"errors"
	"strconv"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// writeTries bounds how often a decision about a store is taken anew because
// somebody else wrote in between. Every try that fails means that another one
// succeeded, so this many in a row is no ordinary traffic.
const writeTries = 32

// putStore is PUT /stores/{externalStoreId}.
func (g *gateway) putStore(x *exchange) error {
	externalID := x.param(0)
	if err := delivery.CheckExternalStoreID(externalID); err != nil {
		return g.counted(x, err)
	}
	var request delivery.StoreRequest
	if err := decodeStore(x.text(), &request); err != nil {
		return g.counted(x, err)
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	before, quota, err := l.Stores.CountAndGet(g.work, x.account, externalID)
	x.quota = quota
	if err != nil {
		return err
	}
	store, serving, err := g.upsert(x, l, externalID, before, &request)
	if err != nil {
		return err
	}
	x.ok(200, appendStore(x.data(), store, serving, request.FleetID.Set))
	return nil
}

// upsert decides and writes until nobody wrote in between.
func (g *gateway) upsert(x *exchange, l *ledger.Ledger, externalID string, before *delivery.Store, request *delivery.StoreRequest) (*delivery.Store, []*delivery.Fleet, error) {
	for range writeTries {
		asked, err := request.Check(before)
		if err != nil {
			return nil, nil, err
		}
		serving := l.Fleets.Snapshot().Covering(asked.Point)
		after, err := upsertStore(before, asked, request.FleetID.Set, serving, x.now)
		if err != nil {
			return nil, nil, err
		}
		after.Account, after.ExternalID = x.account, externalID
		if sameStore(before, after) {
			return &after, serving, nil
		}
		if err = l.Stores.Write(g.work, &after); err == nil {
			return &after, serving, nil
		}
		if !errors.Is(err, ledger.ErrConflict) {
			return nil, nil, err
		}
		if before, err = g.storeIfAny(l, x.account, externalID); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errContended
}

// errContended is a store that others kept writing; it is the moment that is
// wrong, so it answers 503.
var errContended = errors.Join(errors.New("the store is being written by many at once"), delivery.ErrUnavailable)

func (g *gateway) storeIfAny(l *ledger.Ledger, account delivery.AccountID, externalID string) (*delivery.Store, error) {
	store, err := l.Stores.Get(g.work, account, externalID)
	if delivery.CodeOf(err) == delivery.CodeStoreNotFound {
		return nil, nil
	}
	return store, err
}

// changeStore reads a store, lets move decide, and writes it with the notices
// that go with the move, until nobody wrote in between. again tells move that an
// earlier try of this request was not written, or was and the answer got lost:
// then it may find its own work. move reports false when there is nothing to
// write.
func (g *gateway) changeStore(l *ledger.Ledger, account delivery.AccountID, externalID string, move storeMove) (*delivery.Store, error) {
	for try := range writeTries {
		store, err := l.Stores.Get(g.work, account, externalID)
		if err != nil {
			return nil, err
		}
		notices, changed, err := move(store, try > 0)
		if err != nil || !changed {
			return store, err
		}
		if err = l.Stores.Write(g.work, store, notices...); !errors.Is(err, ledger.ErrConflict) {
			return store, err
		}
	}
	return nil, errContended
}

// appendStore appends the store as a vendor sees it: with its fleet (design section
// 9), and unless the request has named one with the fleets that serve it (spec,
// "Store").
func appendStore(dst []byte, s *delivery.Store, serving []*delivery.Fleet, chosen bool) []byte {
	dst = append(dst, '{')
	if !s.Fleet.IsZero() {
		dst = append(dst, `"externalStoreId":`...)
		dst = append(appendString(dst, s.ExternalID), ',')
	}
	dst = append(dst, `"status":`...)
	dst = appendString(dst, s.State.String())
	dst = append(dst, `,"subRegion":`...)
	dst = appendString(dst, s.SubRegion)
	if !s.Fleet.IsZero() {
		dst = append(dst, `,"fleet":{"fleetId":`...)
		dst = appendString(dst, s.Fleet.String())
		dst = append(dst, `,"name":`...)
		dst = append(appendString(dst, s.FleetName), '}')
	}
	if !chosen {
		dst = append(dst, `,"availableFleets":`...)
		dst = appendFleetOptions(dst, serving)
	}
	return append(dst, '}')
}

func appendFleetOptions(dst []byte, fleets []*delivery.Fleet) []byte {
	dst = append(dst, '[')
	for i, f := range fleets {
		if i > 0 {
			dst = append(dst, ',')
		}
		status := "Available"
		if !f.Available() {
			status = "Unavailable"
		}
		dst = append(dst, `{"fleetId":`...)
		dst = appendString(dst, f.ID.String())
		dst = append(dst, `,"name":`...)
		dst = appendString(dst, f.Name)
		dst = append(dst, `,"status":"`...)
		dst = append(dst, status...)
		dst = append(dst, `","avgDeliveryMinutes":`...)
		dst = strconv.AppendInt(dst, int64(f.DeliveryMinutes), 10)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
