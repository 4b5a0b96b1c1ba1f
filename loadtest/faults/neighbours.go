package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
)

// A neighbour is a vendor, a fleet, a receiver or a caller without credentials that does as
// much as it can beside a healthy vendor. All accounts share one partition, so that it is not
// chance that keeps them apart.

const (
	healthyRate        = 200 // orders a second of the healthy vendor
	healthyConnections = 32
	neighbourRounds    = 3
	// neighbourBegins is how long a neighbour has to open its connections, which costs the
	// machine of the test more than the service.
	neighbourBegins = time.Second

	floodConnections = 1000

	// gatewayMemory is mem_limit of a gateway in docker-compose.yml.
	gatewayMemory = 512 << 20
)

// disturb is what a neighbour does until ctx ends. It returns what it saw, for the table.
type disturb func(ctx context.Context, round int) string

// besideNeighbour compares what a healthy vendor sees without and beside a neighbour. It does nothing
// when ctx has ended, as after a preparation of the case that failed.
func (s *overloaded) besideNeighbour(ctx context.Context, what string, neighbour disturb) {
	if ctx.Err() != nil {
		return
	}

	vendor := s.wide[0]
	_, err := s.healthy(ctx, vendor) // connections, caches and the first rows of everything
	s.require(err)

	watched := watch(ctx, append(s.processes(), harness.Self("neighbour"))...)
	var rounds []healthyTally
	var without, beside []float64
	for range neighbourRounds { // all before the neighbour begins: what it has set going may outlast a round
		t, err := s.healthy(ctx, vendor)
		s.require(err)
		if err != nil {
			return
		}
		rounds = append(rounds, t)
		without = append(without, t.P99.Seconds()*1000)
	}

	var seen string
	for round := range neighbourRounds {
		disturbing, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { seen = neighbour(disturbing, round) })
		_ = harness.Sleep(ctx, neighbourBegins)

		t, err := s.healthy(ctx, vendor)
		stop()
		running.Wait()
		s.require(err)
		if ctx.Err() != nil {
			return
		}

		rounds = append(rounds, t)
		beside = append(beside, t.P99.Seconds()*1000)
	}
	used := watched()

	var due, sent, accepted int
	var problems string
	for _, t := range rounds {
		due += t.Due
		sent += t.Sent
		accepted += t.Accepted
		problems += t.Problems
	}

	ratio := harness.Median(beside) / harness.Median(without)
	s.figure(what, "%s", seen)
	s.check(accepted == sent, "the healthy vendor's orders, at 200 a second", "all accepted", "%d of %d%s", accepted, sent, problems)
	s.check(float64(sent) >= s.form.punctual*float64(due), "of them sent when they fell due, not held up by earlier ones",
		fmt.Sprintf("%.4g %%", 100*s.form.punctual), "%d of %d", sent, due)
	s.check(ratio <= s.form.ratio, "their p99 beside the neighbour",
		fmt.Sprintf("at most %.1f times that without, medians of %d rounds", s.form.ratio, neighbourRounds),
		"%.2f times: %.1f ms, without %.1f ms", ratio, harness.Median(beside), harness.Median(without))
	s.check(used["gateway"].Peak <= gatewayMemory, "resident memory of the gateway", "at most 512 MiB",
		"%d MiB", used["gateway"].Peak>>20)
	s.figure("cores used", "gateway %.2f worker %.2f redis %.2f, the neighbour's clients %.2f",
		used["gateway"].Cores, used["worker"].Cores, used["redis"].Cores, used["neighbour"].Cores)
	s.checkReady(ctx, s.Gateway, s.Worker)
}

// besideVendorOverLimit: a vendor that sends 5,000 orders a second of the 10 that it may.
func (s *overloaded) besideVendorOverLimit(ctx context.Context) {
	s.besideNeighbour(ctx, "answers to a vendor over its limit", s.vendorFlood(s.ordinary[0]))
}

func (s *overloaded) besideSuspendedVendor(ctx context.Context) {
	suspended := map[string]bool{"suspended": true}
	s.require(s.apis.Admin.Call(ctx, http.MethodPatch, "/accounts/"+s.ordinary[0].AccountID, suspended, nil))

	s.besideNeighbour(ctx, "answers to a suspended vendor", s.vendorFlood(s.ordinary[0]))
}

func (s *overloaded) vendorFlood(vendor *loadVendor) disturb {
	return func(ctx context.Context, _ int) string {
		flood := s.order(ctx, []*loadVendor{vendor},
			load{connections: floodConnections, rate: floodRate, duration: neighbourBegins + s.form.neighbour})
		return counts(flood.statuses)
	}
}

// besideReader: a vendor that reads in three seconds what it may read in a minute.
func (s *overloaded) besideReader(ctx context.Context) {
	const readable = 3000
	readers, err := s.openNeighbours(ctx, "Reader", neighbourRounds, map[string]any{"orders": stack.Unlimited["orders"]})
	s.require(err)
	if err != nil {
		return
	}
	orders := make([][]placed, len(readers))
	for i, reader := range readers {
		placing := s.order(ctx, []*loadVendor{reader}, load{connections: steadyConnections, duration: time.Minute, most: readable})
		orders[i] = placing.orders
	}

	s.besideNeighbour(ctx, "answers to a vendor that reads 3,000 orders in 3 s", func(ctx context.Context, round int) string {
		reads := s.read(ctx, orders[round], load{connections: floodConnections, rate: 1000, duration: s.form.neighbour})
		return counts(reads.statuses)
	})
}

// besideLargeFleets: a fleet whose courier count changes 50 times a second, beside a hundred with
// the largest areas.
func (s *overloaded) besideLargeFleets(ctx context.Context) {
	const vertices = 19_990
	area := combedArea(vertices)
	var opening errgroup.Group
	opening.SetLimit(4)
	for i := range s.form.fleets {
		opening.Go(func() error {
			_, _, err := s.openFleet(ctx, fmt.Sprintf("Large %03d", i), area)
			return err
		})
	}
	s.require(opening.Wait())
	fleet, _, err := s.openFleet(ctx, "Changing", area)
	s.require(err)
	if err != nil {
		return
	}

	f := load{addr: strings.TrimPrefix(s.Demo.OpsURL, "http://"), connections: 64, rate: 50}
	f.request = func(dst []byte, n int) ([]byte, placed) {
		body := fmt.Sprintf(`{"couriers":%d}`, n%1000+1)
		return request(dst, http.MethodPut, "/api/fleet/v1/availability", fleet.Bearer, body), placed{}
	}
	s.besideNeighbour(ctx, "answers to a fleet that changes its availability", s.sending(f))
}

// besideFleetOfManyStores: a fleet that lists its 10,000 stores as often as it may.
func (s *overloaded) besideFleetOfManyStores(ctx context.Context) {
	fleet, id, err := s.openFleet(ctx, "Of many stores", nil)
	s.require(err)
	if err != nil {
		return
	}
	s.require(s.openStores(ctx, id, s.form.stores))

	f := load{addr: strings.TrimPrefix(s.Demo.OpsURL, "http://"), connections: 64, rate: 200}
	f.request = func(dst []byte, n int) ([]byte, placed) {
		paths := []string{"/stores", "/stores?status=Active", "/stores?status=AwaitingFleetApproval"}
		return request(dst, http.MethodGet, "/api/fleet/v1"+paths[n%len(paths)], fleet.Bearer, ""), placed{}
	}
	s.besideNeighbour(ctx, "answers to a fleet that lists its stores", s.sending(f))
}

// openStores lets vendors choose a fleet for so many stores, 500 each, which then wait for its answer.
func (s *overloaded) openStores(ctx context.Context, fleetID string, n int) error {
	const each = 500
	limits := map[string]any{"stores": stack.Unlimited["stores"]}
	body, err := json.Marshal(stack.StoreBody(fleetID))
	if err != nil {
		return err
	}
	for begin := 0; begin < n; begin += each {
		vendor, err := s.apis.OpenAccount(ctx, fmt.Sprint("Chain ", begin), limits)
		if err != nil {
			return err
		}
		stores := load{addr: s.addr, connections: steadyConnections, duration: time.Minute, most: min(each, n-begin)}
		stores.request = func(dst []byte, n int) ([]byte, placed) {
			return request(dst, http.MethodPut, fmt.Sprint("/api/vendor/v1/stores/branch-", n), vendor.Bearer, string(body)), placed{}
		}
		opened := stores.send(ctx)
		if opened.statuses[http.StatusOK] != stores.most {
			return fmt.Errorf("of %d stores: %s", stores.most, counts(opened.statuses))
		}
	}
	return nil
}

// besideSlowLogins: callers without a credential that announce bodies of 2 MB and send them slowly.
func (s *overloaded) besideSlowLogins(ctx context.Context) {
	const (
		connections = 500
		announced   = 2 << 20
	)
	addresses := []string{s.addr, strings.TrimPrefix(s.Demo.OpsURL, "http://")}
	heads := []string{
		fmt.Sprintf("POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", announced),
		fmt.Sprintf("POST /api/fleet/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", announced),
	}
	s.besideNeighbour(ctx, "callers without a credential", func(ctx context.Context, _ int) string {
		var sending sync.WaitGroup
		for i := range connections {
			sending.Go(func() {
				_ = harness.Sleep(ctx, time.Duration(i)*neighbourBegins/connections)
				for ctx.Err() == nil {
					trickle(ctx, addresses[i%2], heads[i%2])
					_ = harness.Sleep(ctx, time.Second) // refused
				}
			})
		}
		sending.Wait()
		return fmt.Sprintf("%d connections that send 40 kB a second each of a login's body of 2 MB", connections)
	})
}

// trickle sends a request's head, and its body slowly until the other side ends the connection.
func trickle(ctx context.Context, addr, head string) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()

	piece := bytes.Repeat([]byte{' '}, 4<<10)
	_, err = conn.Write([]byte(head))
	for err == nil && harness.Sleep(ctx, 100*time.Millisecond) == nil {
		_, err = conn.Write(piece)
	}
}

// besideReplays: ten vendors that replay as often as they may, beside one with a long day.
func (s *overloaded) besideReplays(ctx context.Context) {
	busy, err := s.openNeighbours(ctx, "Busy", 1, stack.Unlimited)
	s.require(err)
	replaying, err := s.openNeighbours(ctx, "Replaying", 10, nil)
	s.require(err)
	if ctx.Err() != nil {
		return
	}
	for _, vendor := range replaying {
		_, err := vendor.SetWebhook(ctx, s.Demo.Webhook.URL)
		s.require(err)
	}
	s.cancelled(ctx, replaying, len(replaying))
	s.cancelled(ctx, busy, s.form.events)

	f := load{addr: s.addr, connections: len(replaying), rate: 20} // twice what their limit refills
	f.request = func(dst []byte, n int) ([]byte, placed) {
		since := fmt.Sprintf(`{"since":%q}`, time.Now().Add(-time.Hour).Format(time.RFC3339))
		vendor := replaying[n%len(replaying)]
		return request(dst, http.MethodPost, "/api/vendor/v1/webhook/replay", vendor.Bearer, since), placed{}
	}
	what := fmt.Sprintf("answers to ten vendors that replay, beside one with %s events", harness.Grouped(s.form.events))
	s.besideNeighbour(ctx, what, s.sending(f))
}

// cancelled lets vendors order and cancel n times, which is an event each.
func (s *overloaded) cancelled(ctx context.Context, vendors []*loadVendor, n int) {
	const most = 50_000 // at once, so that not all orders are in memory
	for left := n; left > 0 && ctx.Err() == nil; left -= most {
		placing := s.order(ctx, vendors, load{connections: healthyConnections, duration: 5 * time.Minute, most: min(most, left)})
		cancelling := load{addr: s.addr, connections: healthyConnections, duration: 5 * time.Minute, most: len(placing.orders)}
		cancelling.request = func(dst []byte, n int) ([]byte, placed) {
			return cancellation(dst, placing.orders[n]), placing.orders[n]
		}
		ended := cancelling.send(ctx)
		if ended.statuses[http.StatusOK] != min(most, left) {
			s.require(fmt.Errorf("of %d cancellations: %s", min(most, left), counts(ended.statuses)))
		}
	}
}

func cancellation(dst []byte, o placed) []byte {
	return request(dst, http.MethodPost, "/api/vendor/v1/orders/"+o.id+"/cancel", o.vendor.Bearer, "{}")
}

// besideLongAnswers: receivers that answer every webhook with a header line of 60 kB.
func (s *overloaded) besideLongAnswers(ctx context.Context) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.require(err)
	if err != nil {
		return
	}
	s.ends = append(s.ends, func() { listener.Close() })
	go answerLong(listener)

	vendors, err := s.openNeighbours(ctx, "Long answers", 10, nil)
	s.require(err)
	if err != nil {
		return
	}
	for _, vendor := range vendors {
		_, err := vendor.SetWebhook(ctx, "http://"+listener.Addr().String()+"/")
		s.require(err)
	}

	events := 0
	s.besideNeighbour(ctx, "vendors whose receivers answer 60 kB", func(ctx context.Context, _ int) string {
		half := s.form.neighbour / 2
		placing := s.order(ctx, vendors, load{connections: 8, rate: 50, duration: half})
		cancelling := load{addr: s.addr, connections: 8, duration: half, most: len(placing.orders)}
		cancelling.request = func(dst []byte, n int) ([]byte, placed) {
			return cancellation(dst, placing.orders[n]), placing.orders[n]
		}
		events += cancelling.send(ctx).statuses[http.StatusOK]
		return fmt.Sprintf("%d cancellations so far", events)
	})
	s.checkAttemptsKept(ctx, vendors)
}

// checkAttemptsKept: of what receivers answer only the beginning is kept, whatever its length.
func (s *overloaded) checkAttemptsKept(ctx context.Context, vendors []*loadVendor) {
	const shown = 200
	const most = utf8.UTFMax * (delivery.MaxForeignError + delivery.MaxForeignAnswer)
	attempts, failed, longest := 0, 0, 0
	for _, vendor := range vendors {
		account, err := delivery.ParseAccountID(vendor.AccountID)
		s.require(err)
		records, err := s.ledger.Webhooks.LastAttempts(ctx, account, shown)
		s.require(err)
		for _, record := range records {
			attempts++
			longest = max(longest, len(record.Error)+len(record.Answer))
			if record.Error != "" {
				failed++
			}
		}
	}

	s.check(failed > 0 && longest <= most, "the longest text that is kept of an attempt", fmt.Sprintf("at most %d bytes", most),
		"%d bytes; %d of %d attempts failed", longest, failed, attempts)
}

// answerLong answers every request with a header line that no client can read.
func answerLong(listener net.Listener) {
	answer := slices.Concat([]byte("HTTP/1.1 500 Wrong\r\n"), bytes.Repeat([]byte("\xc3"), 60_000), []byte("\r\n\r\n"))
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = conn.Read(make([]byte, 4<<10))
			_, _ = conn.Write(answer)
		}()
	}
}

// sending sends a load until the neighbour is stopped.
func (s *overloaded) sending(f load) disturb {
	return func(ctx context.Context, _ int) string {
		f.duration = neighbourBegins + s.form.neighbour
		return counts(f.send(ctx).statuses)
	}
}

func (s *overloaded) openNeighbours(ctx context.Context, name string, n int, limits any) ([]*loadVendor, error) {
	opened, err := s.apis.OpenVendors(ctx, n, func(i int) stack.VendorOptions {
		return stack.VendorOptions{Name: fmt.Sprint(name, " ", i), Limits: limits}
	})
	var vendors []*loadVendor
	for _, v := range opened {
		if v != nil && err == nil {
			vendors = append(vendors, newLoadVendor(v))
		}
	}
	return vendors, err
}

// openFleet makes a fleet and logs it in. A nil area is that of the demo's fleet.
func (s *overloaded) openFleet(ctx context.Context, name string, area []byte) (fleet *client.Client, id string, err error) {
	if area == nil {
		area = []byte(`{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`)
	}
	var opened struct{ FleetID, ClientID, ClientSecret string }
	body := map[string]any{"name": name, "avgDeliveryMinutes": 25, "subRegion": "Moda", "coverage": json.RawMessage(area)}
	if err := s.apis.Admin.Call(ctx, http.MethodPost, "/fleets", body, &opened); err != nil {
		return nil, "", err
	}
	login := client.New(s.Demo.OpsURL+"/api/fleet/v1", 4)
	fleet, err = login.Login(ctx, "/token", opened.ClientID, opened.ClientSecret)
	return fleet, opened.FleetID, errors.Join(err)
}

// combedArea is a polygon around Istanbul with so many vertices.
func combedArea(vertices int) []byte {
	area := []byte(`{"type":"Polygon","coordinates":[[`)
	for i := range vertices {
		part := float64(i) / float64(vertices)
		area = fmt.Appendf(area, "[%.12f,%.12f],", 28.5+part, 40.8+part*0.01)
	}
	return append(area, "[29.5,41.3],[28.5,41.3],[28.500000000000,40.800000000000]]]}"...)
}

// request is one of a caller with a token; an empty body is none.
func request(dst []byte, method, path, bearer, body string) []byte {
	dst = fmt.Appendf(dst, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n", method, path, bearer)
	if body == "" {
		return append(dst, "\r\n"...)
	}
	return fmt.Appendf(dst, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}
