package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
)

// A neighbour is a vendor, a fleet or a caller without credentials that does as much as it can
// beside a healthy vendor. All accounts share one partition, so that it is not chance that keeps
// them apart.

const (
	healthyRate        = 200 // orders a second of the healthy vendor
	healthyConnections = 32
	neighbourRounds    = 3
	// neighbourBegins is how long a neighbour has to open its connections, which costs the
	// machine of the test more than the service.
	neighbourBegins = time.Second

	floodRate        = 5000 // requests a second of a flood
	floodConnections = 1000

	// gatewayMemory is mem_limit of a gateway in docker-compose.yml.
	gatewayMemory = 512 << 20
)

// disturb is what a neighbour does until ctx ends. It returns what it saw, for the report.
type disturb func(ctx context.Context, round int) string

// besideNeighbour compares what a healthy vendor sees without and beside a neighbour. It does nothing
// when ctx has ended, as after a preparation of the round that failed.
func (s *ownSystem) besideNeighbour(ctx context.Context, what string, neighbour disturb) {
	if ctx.Err() != nil {
		return
	}

	_, err := s.healthy(ctx, s.wide[0]) // connections, caches and the first rows of everything
	s.require(err)

	watched := watch(ctx, append(s.processes(), harness.Self("neighbour"))...)
	var without, beside healthyRounds
	for range neighbourRounds { // all before the neighbour begins: what it has set going may outlast a round
		t, err := s.healthy(ctx, s.wide[0])
		s.require(err)
		without.add(t)
	}

	var seen string
	for round := range neighbourRounds {
		disturbing, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { seen = neighbour(disturbing, round) })
		_ = harness.Sleep(ctx, neighbourBegins)

		t, err := s.healthy(ctx, s.wide[0])
		stop()
		running.Wait()
		s.require(err)
		beside.add(t)
	}

	used := watched()
	if ctx.Err() != nil {
		return
	}

	s.figure(what, "%s", seen)
	s.checkHealthy(without, beside)
	s.check(expectation{
		what:  "resident memory of the gateway",
		want:  "at most 512 MiB",
		got:   fmt.Sprintf("%d MiB", used["gateway"].Peak>>20),
		holds: used["gateway"].Peak <= gatewayMemory,
	})

	s.figure("cores used", "gateway %.2f worker %.2f redis %.2f, the neighbour's clients %.2f",
		used["gateway"].Cores, used["worker"].Cores, used["redis"].Cores, used["neighbour"].Cores)
	s.checkReady(ctx, s.Gateway, s.Worker)
}

// healthyRounds are what the healthy vendor's clients have counted in several rounds.
type healthyRounds struct {
	due, sent, accepted int
	problems            string
	p99                 []float64 // milliseconds
}

func (h *healthyRounds) add(t healthyTally) {
	h.due += t.Due
	h.sent += t.Sent
	h.accepted += t.Accepted
	h.problems += t.Problems
	h.p99 = append(h.p99, t.P99.Seconds()*1000)
}

// checkHealthy checks that the healthy vendor notices no neighbour.
func (s *ownSystem) checkHealthy(without, beside healthyRounds) {
	due, sent, accepted := without.due+beside.due, without.sent+beside.sent, without.accepted+beside.accepted
	ratio := harness.Median(beside.p99) / harness.Median(without.p99)
	s.check(expectation{
		what:  "the healthy vendor's orders, at 200 a second",
		want:  "all accepted",
		got:   fmt.Sprintf("%d of %d%s", accepted, sent, without.problems+beside.problems),
		holds: accepted == sent,
	})

	s.check(expectation{
		what:  "of them sent when they fell due, not held up by earlier ones",
		want:  fmt.Sprintf("%.4g %%", 100*s.form.punctual),
		got:   fmt.Sprintf("%d of %d", sent, due),
		holds: float64(sent) >= s.form.punctual*float64(due),
	})

	s.check(expectation{
		what: "their p99 beside the neighbour",
		want: fmt.Sprintf("at most %.1f times that without, medians of %d rounds", s.form.ratio, neighbourRounds),
		got: fmt.Sprintf("%.2f times: %.1f ms, without %.1f ms",
			ratio, harness.Median(beside.p99), harness.Median(without.p99)),
		holds: ratio <= s.form.ratio,
	})
}

// sending sends a load until the neighbour is stopped.
func (s *ownSystem) sending(l load) disturb {
	return func(ctx context.Context, _ int) string {
		l.duration = neighbourBegins + s.form.neighbour
		return counts(l.send(ctx).statuses)
	}
}

// besideVendorOverLimit: a vendor sends 5,000 orders a second of the 10 that it may.
func (s *ownSystem) besideVendorOverLimit(ctx context.Context) {
	s.besideNeighbour(ctx, "answers to a vendor over its limit", func(ctx context.Context, _ int) string {
		flood := s.order(ctx, s.ordinary[:1], load{
			connections: floodConnections,
			rate:        floodRate,
			duration:    neighbourBegins + s.form.neighbour,
		})
		return counts(flood.statuses)
	})
}

// besideReader: a vendor reads in three seconds what it may read in a minute.
func (s *ownSystem) besideReader(ctx context.Context) {
	const readable = 3000
	readers, err := s.openVendors(ctx, "Reader", neighbourRounds, map[string]any{"orders": stack.Unlimited["orders"]})
	s.require(err)
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

// besideReports: a fleet's credential in wrong hands sends 5,000 reports a second, of open and of ended orders.
func (s *ownSystem) besideReports(ctx context.Context) {
	orders := s.openAndEnded(ctx)
	ofOpen := []string{ // none of these ends an order
		`{"status":"Assigned"}`,
		`{"status":"Failed","failureReason":"AddressNotFound"}`,
	}

	ofEnded := []string{
		`{"status":"Assigned"}`,
		`{"status":"PickedUp"}`,
		`{"status":"Delivered"}`,
		`{"status":"Failed","failureReason":"Other"}`,
	}

	reports := load{addr: s.fleetAddr(), connections: 32, rate: floodRate}
	reports.request = func(dst []byte, n int) ([]byte, placed) {
		bodies := ofOpen
		if n%2 == 1 {
			bodies = ofEnded
		}

		m := message{
			method: http.MethodPost,
			path:   "/api/fleet/v1/jobs/" + orders[n%len(orders)] + "/status",
			bearer: s.apis.Fleet.Bearer,
			body:   bodies[n/len(orders)%len(bodies)],
		}

		return m.append(dst), placed{}
	}

	s.besideNeighbour(ctx, "answers to a fleet that reports without end", s.sending(reports))
}

// openAndEnded returns a hundred open and a hundred ended orders of the fleet, in turns: open ones have even numbers.
func (s *ownSystem) openAndEnded(ctx context.Context) (ids []string) {
	const n = 200
	t := s.order(ctx, s.wide, load{connections: 4, duration: time.Minute, most: n})
	if len(t.orders) != n {
		s.require(fmt.Errorf("%d of %d orders accepted%s", len(t.orders), n, t.problems()))
		return nil
	}

	for i, o := range t.orders {
		ids = append(ids, o.id)
		if i%2 == 1 {
			delivered := map[string]string{"status": "Delivered"}
			s.require(s.apis.Fleet.Call(ctx, http.MethodPost, "/jobs/"+o.id+"/status", delivered, nil))
		}
	}

	s.require(harness.Await(ctx, "the worker", s.form.timeout, pollInterval, func() (bool, error) {
		var job struct{ Status string }
		err := s.apis.Fleet.Call(ctx, http.MethodGet, "/jobs/"+ids[n-1], nil, &job)
		return job.Status == "Delivered", err
	}))

	return ids
}

// besideWrongLogins: an attacker without a credential guesses at the healthy vendor's client, at clients that do not
// exist, and with what is no client's ID.
func (s *ownSystem) besideWrongLogins(ctx context.Context) {
	healthy := s.wide[0]
	logins := load{addr: s.addr, connections: 600, rate: floodRate}
	logins.request = func(dst []byte, n int) ([]byte, placed) {
		clients := []string{healthy.ClientID, fmt.Sprintf("ven_%032x", n), "nobody"}
		m := message{
			method: http.MethodPost,
			path:   "/api/vendor/v1/token",
			body:   fmt.Sprintf(`{"clientId":%q,"clientSecret":"vas_%d"}`, clients[n%len(clients)], n),
		}
		return m.append(dst), placed{}
	}

	s.besideNeighbour(ctx, "answers to wrong logins", s.sending(logins))
}

// besideLargeFleets: a fleet's courier count changes 50 times a second, beside a hundred with the largest areas.
func (s *ownSystem) besideLargeFleets(ctx context.Context) {
	const vertices = 19_990
	area := combedArea(vertices)
	var opening errgroup.Group
	opening.SetLimit(4)
	for i := range s.form.fleets {
		opening.Go(func() error {
			_, err := s.openFleet(ctx, fmt.Sprintf("Large %03d", i), area)
			return err
		})
	}

	changing, err := s.openFleet(ctx, "Changing", area)
	err = errors.Join(err, opening.Wait())
	if err != nil {
		s.require(err)
		return
	}

	changes := load{addr: s.fleetAddr(), connections: 64, rate: 50}
	changes.request = func(dst []byte, n int) ([]byte, placed) {
		m := message{
			method: http.MethodPut,
			path:   "/api/fleet/v1/availability",
			bearer: changing.Bearer,
			body:   fmt.Sprintf(`{"couriers":%d}`, n%1000+1),
		}
		return m.append(dst), placed{}
	}

	s.besideNeighbour(ctx, "answers to a fleet that changes its availability", s.sending(changes))
}

// openFleet makes a fleet with an area and logs it in.
func (s *ownSystem) openFleet(ctx context.Context, name string, area []byte) (*client.Client, error) {
	var opened struct{ ClientID, ClientSecret string }
	body := map[string]any{"name": name, "avgDeliveryMinutes": 25, "subRegion": "Moda", "coverage": json.RawMessage(area)}
	if err := s.apis.Admin.Call(ctx, http.MethodPost, "/fleets", body, &opened); err != nil {
		return nil, err
	}
	login := client.New(s.Demo.OpsURL+"/api/fleet/v1", 4)
	return login.Login(ctx, "/token", opened.ClientID, opened.ClientSecret)
}

// combedArea returns a polygon around Istanbul with so many vertices.
func combedArea(vertices int) []byte {
	area := []byte(`{"type":"Polygon","coordinates":[[`)
	for i := range vertices {
		part := float64(i) / float64(vertices)
		area = fmt.Appendf(area, "[%.12f,%.12f],", 28.5+part, 40.8+part*0.01)
	}
	return append(area, "[29.5,41.3],[28.5,41.3],[28.500000000000,40.800000000000]]]}"...)
}

// fleetAddr returns where the Fleet API is reached, as host:port.
func (s *ownSystem) fleetAddr() string { return strings.TrimPrefix(s.Demo.OpsURL, "http://") }

// message is a request of a neighbour with a JSON body.
type message struct {
	method, path string
	bearer       string // empty: without a credential
	body         string
}

func (m *message) append(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%s %s HTTP/1.1\r\nHost: x\r\n", m.method, m.path)
	if m.bearer != "" {
		dst = fmt.Appendf(dst, "Authorization: Bearer %s\r\n", m.bearer)
	}
	return fmt.Appendf(dst, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(m.body), m.body)
}
