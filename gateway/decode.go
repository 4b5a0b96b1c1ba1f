package main

import (
	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// The decoders fill in the domain's requests. They return MALFORMED_REQUEST or
// nil; wrong types are left to the requests' own Check, which ranks them among
// the other faults.

func decodeOrder(body string, o *delivery.OrderRequest) error {
	r := strictjson.New(body)
	r.Root(func(key string) {
		switch key {
		case "externalStoreId":
			r.Text("externalStoreId", &o.ExternalStoreID)
		case "externalOrderId":
			r.Text("externalOrderId", &o.ExternalOrderID)
		case "orderedAt":
			r.Text("orderedAt", &o.OrderedAt)
		case "readyAt":
			r.Text("readyAt", &o.ReadyAt)
		case "recipient":
			decodeRecipient(&r, o)
		case "dropoff":
			decodeDropoff(&r, o)
		case "packageNote":
			r.Text("packageNote", &o.PackageNote)
		case "orderAmount":
			r.Number("orderAmount", &o.OrderAmount)
		case "payment":
			decodePayment(&r, o)
		default:
			r.Skip()
		}
	})
	o.WrongType = r.Wrong
	return r.End()
}

func decodeRecipient(r *strictjson.Reader, o *delivery.OrderRequest) {
	r.Object("recipient", func(key string) {
		switch key {
		case "name":
			r.Text("recipient.name", &o.RecipientName)
		case "phone":
			r.Text("recipient.phone", &o.RecipientPhone)
		default:
			r.Skip()
		}
	})
}

func decodeDropoff(r *strictjson.Reader, o *delivery.OrderRequest) {
	r.Object("dropoff", func(key string) {
		switch key {
		case "text":
			r.Text("dropoff.text", &o.DropoffText)
		case "latitude":
			r.Number("dropoff.latitude", &o.DropoffLatitude)
		case "longitude":
			r.Number("dropoff.longitude", &o.DropoffLongitude)
		case "buildingNo":
			r.Text("dropoff.buildingNo", &o.DropoffBuildingNo)
		case "doorNo":
			r.Text("dropoff.doorNo", &o.DropoffDoorNo)
		case "floor":
			r.Text("dropoff.floor", &o.DropoffFloor)
		case "note":
			r.Text("dropoff.note", &o.DropoffNote)
		default:
			r.Skip()
		}
	})
}

func decodePayment(r *strictjson.Reader, o *delivery.OrderRequest) {
	r.Object("payment", func(key string) {
		switch key {
		case "type":
			r.Text("payment.type", &o.PaymentType)
		case "collectionAmount":
			r.Number("payment.collectionAmount", &o.PaymentCollectionAmount)
		default:
			r.Skip()
		}
	})
}

func decodeStore(body string, s *delivery.StoreRequest) error {
	r := strictjson.New(body)
	r.Root(func(key string) {
		switch key {
		case "taxNumber":
			r.Text("taxNumber", &s.TaxNumber)
		case "name":
			r.Text("name", &s.Name)
		case "phone":
			r.Text("phone", &s.Phone)
		case "address":
			r.Object("address", func(key string) {
				switch key {
				case "text":
					r.Text("address.text", &s.AddressText)
				case "latitude":
					r.Number("address.latitude", &s.AddressLatitude)
				case "longitude":
					r.Number("address.longitude", &s.AddressLongitude)
				default:
					r.Skip()
				}
			})
		case "fleetId":
			r.Text("fleetId", &s.FleetID)
		default:
			r.Skip()
		}
	})
	s.WrongType = r.Wrong
	return r.End()
}

func decodeCancel(body string, c *delivery.CancelRequest) error {
	r := strictjson.New(body)
	r.Root(func(key string) {
		switch key {
		case "reason":
			r.Text("reason", &c.Reason)
		case "note":
			r.Text("note", &c.Note)
		default:
			r.Skip()
		}
	})
	c.WrongType = r.Wrong
	return r.End()
}
