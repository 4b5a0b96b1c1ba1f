package main

import (
	"testing"
	"time"

	"github.com/bytedance/sonic"

	"vendorapi/internal/delivery"
)

// BenchmarkAnswer compares the two ways to write the answer of a creation: as
// package delivery appends it, and a view of it encoded by sonic.
func BenchmarkAnswer(b *testing.B) {
	o := &delivery.Order{ID: delivery.MakeOrderID(3, 20000, delivery.OrderDigest(delivery.AccountID{1}, "order")), CreatedAt: time.Now()}
	o.ExternalOrderID, o.Fleet.ID, o.Fleet.Name = "POS-1", delivery.NewFleetID(), "Kurye"
	const url = "https://track.example/track/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	var out []byte
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out = o.AppendCreated(out[:0], url)
		}
	})

	type view struct {
		OrderID           string    `json:"orderId"`
		ExternalOrderID   string    `json:"externalOrderId"`
		Status            string    `json:"status"`
		Fleet             fleetName `json:"fleet"`
		TrackingURL       string    `json:"trackingUrl"`
		EstimatedPickupAt string    `json:"estimatedPickupAt"`
	}

	b.Run("sonic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encoded, err := sonic.ConfigDefault.Marshal(view{o.ID.String(), o.ExternalOrderID, delivery.Searching.String(),
				fleetName{o.Fleet.ID.String(), o.Fleet.Name}, url, delivery.FormatTime(o.EstimatedPickup())})
			if err != nil {
				b.Fatal(err)
			}
			out = append(out[:0], encoded...)
		}
	})
}
