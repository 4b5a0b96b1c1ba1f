package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

// world is a running system with what lives in it.
type world struct {
	*stack.Stack
	out     io.Writer
	admin   *client.Client
	fleets  []stack.DemoFleet // the demo's first
	vendors []*vendor
	servers []*http.Server
	// tracked is the path of a tracking link whose order is under way.
	tracked string
}

func (w *world) close() {
	for _, s := range w.servers {
		_ = s.Close() // everything ends now
	}
}

func (w *world) serve(l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h}
	w.servers = append(w.servers, server)
	go func() { _ = server.Serve(l) }() // ends with the server
}

// fleetPlan is a courier service around a place.
type fleetPlan struct {
	name, region        string
	latitude, longitude float64
	wide                float64 // degrees from the middle to each side
	delivery, pickup    int     // minutes
}

var fleetPlans = []fleetPlan{
	{"Boğaz Kurye", "Kadıköy", 41.02, 29.02, 0.25, 22, 8},
	{"Başkent Moto", "Çankaya", 39.92, 32.85, 0.30, 28, 10},
	{"Ege Ekspres", "Konak", 38.42, 27.14, 0.28, 24, 9},
	{"Akdeniz Dağıtım", "Muratpaşa", 36.88, 30.70, 0.30, 30, 12},
}

// vendorPlan is a vendor with what it has told its receiver to be.
type vendorPlan struct {
	name     string
	fleet    int // of fleetPlans
	branches []branch
	perHour  float64
	receiver manner
}

type branch struct {
	id, name, address   string
	latitude, longitude float64
}

var vendorPlans = []vendorPlan{
	{"Kasa Defteri", 0, []branch{
		{"moda-01", "Çiya Lokantası Moda", "Moda Caddesi No: 41, Kadıköy/İstanbul", 40.9836, 29.0262},
		{"karakoy-02", "Köşe Börekçisi Karaköy", "Kemankeş Caddesi No: 12, Beyoğlu/İstanbul", 41.0222, 28.9773},
		{"besiktas-03", "Şirin Fırın Beşiktaş", "Ortabahçe Caddesi No: 7, Beşiktaş/İstanbul", 41.0430, 29.0072},
	}, 1500, healthy},
	{"Adisyo Bulut", 1, []branch{
		{"kizilay", "Ulus Kebap Kızılay", "Meşrutiyet Caddesi No: 18, Çankaya/Ankara", 39.9190, 32.8562},
		{"tunali", "Gül Pastanesi Tunalı", "Tunalı Hilmi Caddesi No: 90, Çankaya/Ankara", 39.9066, 32.8606},
	}, 700, failing},
	{"Lezzet Yazılım", 2, []branch{
		{"alsancak", "Kordon Balık Alsancak", "Kıbrıs Şehitleri Caddesi No: 55, Konak/İzmir", 38.4379, 27.1430},
		{"bornova", "Boyoz Evi Bornova", "Mustafa Kemal Caddesi No: 21, Bornova/İzmir", 38.4665, 27.2178},
	}, 500, absent},
	{"Mutfak Takip", 3, []branch{
		{"lara", "Narenciye Cafe Lara", "Barınaklar Bulvarı No: 3, Muratpaşa/Antalya", 36.8532, 30.7558},
	}, 300, gone},
}

// build makes fleets, accounts, their receivers and stores.
func (w *world) build(ctx context.Context) error {
	for _, change := range []struct {
		path string
		body any
	}{
		{"/accounts/" + w.Demo.Account.AccountID, map[string]any{"name": "Anadolu Sofrası"}},
		{"/fleets/" + w.Demo.Fleet.FleetID, map[string]any{"name": "Yıldız Kurye", "subRegion": "Marmara"}},
	} {
		if err := w.admin.Call(ctx, http.MethodPatch, change.path, change.body, nil); err != nil {
			return err
		}
	}
	w.fleets = []stack.DemoFleet{w.Demo.Fleet}
	for _, plan := range fleetPlans {
		var made stack.DemoFleet
		if err := w.admin.Call(ctx, http.MethodPost, "/fleets", plan.body(), &made); err != nil {
			return err
		}
		w.fleets = append(w.fleets, made)
	}
	for _, plan := range vendorPlans {
		v, err := w.addVendor(ctx, plan)
		if err != nil {
			return fmt.Errorf("%s: %w", plan.name, err)
		}
		w.vendors = append(w.vendors, v)
	}
	var suspended stack.DemoAccount
	if err := w.admin.Call(ctx, http.MethodPost, "/accounts", map[string]any{"name": "Eski Terazi"}, &suspended); err != nil {
		return err
	}
	return w.admin.Call(ctx, http.MethodPatch, "/accounts/"+suspended.AccountID, map[string]any{"suspended": true}, nil)
}

func (p fleetPlan) body() map[string]any {
	south, north, west, east := p.latitude-p.wide, p.latitude+p.wide, p.longitude-p.wide*1.3, p.longitude+p.wide*1.3
	// An eight-sided area: courier services do not end at right angles.
	cut := p.wide * 0.5
	ring := [][2]float64{{west, south + cut}, {west + cut, south}, {east - cut, south}, {east, south + cut},
		{east, north - cut}, {east - cut, north}, {west + cut, north}, {west, north - cut}, {west, south + cut}}
	return map[string]any{
		"name": p.name, "subRegion": p.region, "avgDeliveryMinutes": p.delivery, "avgPickupMinutes": p.pickup,
		"coverage": map[string]any{"type": "Polygon", "coordinates": [][][2]float64{ring}},
	}
}

// write puts a picture into the folder.
func write(dir, name string, content []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), content, 0o644)
}

func number(kurus int) json.Number { return json.Number(fmt.Sprintf("%d.%02d", kurus/100, kurus%100)) }
