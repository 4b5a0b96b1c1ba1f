package systemtest

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
)

// scenario is what the parts of TestSystem leave to the later ones.
type scenario struct {
	*env
	v       *vendor // whose orders the reports are about
	body    map[string]any
	created *client.Answer // of body with the key scenarioKey
	orders  map[string]int // how many of v's ended in a status
	options stack.Options
}

const scenarioKey = "scenario-1"

// One system from its start to a restart. The parts build on each other.
//
//rule:what-the-service-does/a-courier-fleet-not-the what-the-service-does/6 what-the-service-does/facts-that/payment-handling-the-service-stores
//rule:endpoints/all-endpoints-except-the-token private-apis/private-listener-json-the-same decisions/must-not-be-added-because
//rule:order-states/searching order-states/assigned order-states/PickingUp order-states/PickedUp order-states/delivering order-states/delivered
//rule:order-states/failed order-states/cancelled order-states/searching-to-assigned order-states/assigned-to-pickingup order-states/pickingup-to-pickedup
//rule:order-states/pickedup-to-delivering order-states/searching-assigned-pickingup-to-cancelled order-states/every-status-change-produces-a
//rule:post-orders-orderid-cancel/cancels-an-order-before-pickup webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to
//rule:events/the-service-posts-each-event fleet-api/post-jobs-orderid-status states/creation-itself-sends-no-webhook
//rule:limits/rules/1 limits/rules/3 limits-and-idempotency/429-retry-after-and-data.retryafterseconds-rounded
//rule:make-run/DATA_DIR make-run/COURIER make-run/ctrl-c-stops-everything-cleanly-started make-run/other-programs-on-the-machine
func TestSystem(t *testing.T) {
	t.Parallel()

	panel := stack.FreeAddr() // tracking links name it, and a creation's answer holds one
	o := stack.Options{DataDir: t.TempDir(), PanelAddr: panel, Env: []string{ayseKeyLine()}}
	e := newEnv(t, o)
	o.Courier, o.Reporting = "manual", true
	s := &scenario{env: e, v: newVendor(t, e.stackEnv), orders: map[string]int{}, options: o}
	for _, part := range []struct {
		name string
		test func(*testing.T, *scenario)
	}{
		{"an order goes through every state", testStates},
		{"orders are cancelled before pickup", testCancellations},
		{"a limit refuses and admits again", testLimit},
		{"the tables have every route", func(t *testing.T, s *scenario) { testTablesAreComplete(t, s.env) }},
		{"credentials open their own API only", func(t *testing.T, s *scenario) { testCredentials(t, s.env) }},
		{"private routes are not public", func(t *testing.T, s *scenario) { testPrivateRoutes(t, s.env) }},
		{"tenants are kept apart", func(t *testing.T, s *scenario) { testTenants(t, s.env) }},
		{"no webhook reaches the system itself", func(t *testing.T, s *scenario) { testOwnPorts(t, s.env) }},
		{"a second run is refused", testSecondRun},
		{"reports balance", testReportsBalance},
		{"who did what is on record", testAudit},
		{"nothing is lost over a restart", testRestart},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, s) }) {
			return
		}
	}
}

// order creates one of the scenario's with an amount to collect.
func (s *scenario) order(t *testing.T, payment, amount string) string {
	t.Helper()
	return s.v.Create(t, paid(payment, amount))
}

func paid(payment, amount string) func(map[string]any) {
	return func(o map[string]any) {
		o["orderAmount"] = number(amount)
		o["payment"] = map[string]any{"type": payment, "collectionAmount": number(amount)}
	}
}

// carry takes an order from Searching to a status, in every step between.
func (s *scenario) carry(t *testing.T, id, status string) {
	t.Helper()
	if status == "Searching" {
		return
	}

	s.Accept(t, id)
	s.AwaitStatus(t, id, "Assigned")
	for _, next := range forward[2 : slices.Index(forward, status)+1] {
		s.Report(t, id, next, "")
	}
}

// notified waits until the vendor has received these statuses, and no other.
func (s *scenario) notified(t *testing.T, id string, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("received %v, want %v", got, want)
		}
	}()

	await(t, "every webhook of the order has come", func() bool {
		got = statuses(s.v.received.Timeline(id))
		return len(got) >= len(want)
	})

	if !slices.Equal(got, want) {
		t.Error("other webhooks have come")
	}
	if c := s.v.received.Counts(); len(c.Invalid) > 0 || c.Changed > 0 {
		t.Errorf("webhooks: %+v", c)
	}

	s.orders[want[len(want)-1]]++
}

// replayed fails unless the first creation is answered again as it was.
func (s *scenario) replayed(t *testing.T) {
	t.Helper()
	again := succeeds(t, s.v.Client, http.MethodPost, "/orders", s.body, nil, "X-Idempotency-Key", scenarioKey)
	if string(again.Raw) != string(s.created.Raw) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a replay answers %s instead of %s", again.Raw, s.created.Raw)
	}
}

// forward is an order's way.
var forward = []string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}

func testStates(t *testing.T, s *scenario) {
	var created struct{ OrderID, Status string }
	s.body = s.v.Order(paid("Cash", "249.90"))
	s.created = succeeds(t, s.v.Client, http.MethodPost, "/orders", s.body, &created, "X-Idempotency-Key", scenarioKey)
	s.replayed(t)
	if created.Status != forward[0] || s.StatusOf(t, created.OrderID) != forward[0] {
		t.Errorf("a new order is %s", created.Status)
	}

	s.carry(t, created.OrderID, "Delivered")
	s.notified(t, created.OrderID, forward[1:]...)
	var read struct {
		Status string
		Events []struct{ Status string }
	}

	succeeds(t, s.v.Client, http.MethodGet, "/orders/"+created.OrderID, nil, &read)
	var events []string
	for _, e := range read.Events {
		events = append(events, e.Status)
	}

	if read.Status != "Delivered" || !slices.Equal(events, forward) {
		t.Errorf("the vendor reads %s after %v", read.Status, events)
	}

	failed := s.order(t, "Cash", "75.50")
	s.carry(t, failed, "Delivering")
	s.Report(t, failed, "Failed", "CustomerRefused")
	s.notified(t, failed, append(slices.Clone(forward[1:5]), "Failed")...)
	s.replayed(t)
}

func testCancellations(t *testing.T, s *scenario) {
	for i, from := range forward[:3] {
		id := s.order(t, "Cash", "10.00")
		s.carry(t, id, from)
		s.cancel(t, id)
		s.notified(t, id, append(slices.Clone(forward[1:i+1]), "Cancelled")...)
	}

	late := s.order(t, "Card", "310.05")
	s.carry(t, late, "PickedUp")
	if a := as(t, s.v.Client, http.MethodPost, "/orders/"+late+"/cancel", nil); a.Status != http.StatusConflict || a.Code != "ORDER_NOT_CANCELLABLE" {
		t.Errorf("cancelling after pickup: %d %s", a.Status, a.Raw)
	}

	s.Report(t, late, "Delivering", "")
	s.Report(t, late, "Delivered", "")
	s.notified(t, late, forward[1:]...)
}

func (s *scenario) cancel(t *testing.T, id string) {
	t.Helper()
	var order struct{ Status string }
	succeeds(t, s.v.Client, http.MethodPost, "/orders/"+id+"/cancel", map[string]string{"reason": "CustomerRequest"}, &order)
	if order.Status != "Cancelled" {
		t.Errorf("a cancelled order is %s", order.Status)
	}
}

// testLimit: the long window shows what is refused, the short one that waiting
// helps.
func testLimit(t *testing.T, s *scenario) {
	v := s.Vendor(t, map[string]any{"orders": stack.Limit(2, 3600)})
	send := func() *client.Answer { return as(t, v.Client, http.MethodPost, "/orders", v.Order(nil)) }
	for i := range 3 {
		a := send()
		if i < 2 && a.Status == http.StatusCreated {
			continue
		}

		var detail struct{ RetryAfterSeconds int }
		must(t, json.Unmarshal(a.Data, &detail))
		wait := a.RetryAfter()
		if i < 2 || a.Status != http.StatusTooManyRequests || a.Code != "RATE_LIMITED" || wait < time.Second || wait > time.Hour ||
			wait != time.Duration(detail.RetryAfterSeconds)*time.Second || a.Header.Get("X-RateLimit-Remaining") != "0" || a.Header.Get("X-RateLimit-Limit") != "2" {
			t.Fatalf("of 2 in an hour number %d is answered %d %v %s", i+1, a.Status, a.Header, a.Raw)
		}
	}

	succeeds(t, s.Admin, http.MethodPatch, "/accounts/"+v.AccountID, map[string]any{"limits": map[string]any{"orders": stack.Limit(1, 1)}}, nil)
	await(t, "an order is admitted again", func() bool { return send().Status == http.StatusCreated })
}

func testSecondRun(t *testing.T, s *scenario) {
	taken := strings.TrimPrefix(s.Demo.BaseURL, "http://")
	for name, c := range map[string]struct {
		o    stack.Options
		want []string
	}{
		"data directory": {stack.Options{DataDir: s.dir}, []string{"in use by another run", "DATA_DIR"}},
		"gateway port":   {stack.Options{DataDir: t.TempDir(), GatewayAddr: taken}, []string{"address already in use", "GATEWAY_ADDR"}},
		"ops port":       {stack.Options{DataDir: t.TempDir(), OpsAddr: taken}, []string{"address already in use", "OPS_ADDR"}},
		"panel port":     {stack.Options{DataDir: t.TempDir(), Reporting: true, PanelAddr: taken}, []string{"address already in use", "PANEL_ADDR"}},
		"engine port":    {stack.Options{DataDir: t.TempDir(), Reporting: true, ClickHouseAddr: taken}, []string{"address already in use", "CLICKHOUSE_ADDR"}},
		"nothing":        {stack.Options{}, []string{"no data directory"}},
	} {
		c.o.BinDir = testserver.Programs(t)
		second, err := stack.Start(t.Context(), c.o)
		if err == nil {
			second.Stop()
			t.Fatalf("%s: started", name)
		}

		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
	}
}

// testReportsBalance: what was to be collected for delivered orders stands in the
// reports to the kuruş, the ledger has every order once, and Redis and ClickHouse
// agree.
func testReportsBalance(t *testing.T, s *scenario) {
	reports := client.New("", 2).As(s.Demo.PanelURL+"/reports", s.Demo.ReportsToken)
	today := time.Now().UTC()
	query := "?" + url.Values{"account": {s.v.AccountID},
		"from": {today.AddDate(0, 0, -1).Format(time.DateOnly)}, "to": {today.AddDate(0, 0, 1).Format(time.DateOnly)}}.Encode()
	var shown string
	want := fmt.Sprintf("orders %v, delivered 2, cash 249.90, card 310.05, untied []", s.orders)
	defer func() {
		if t.Failed() {
			t.Logf("the reports show %s\nwant             %s", shown, want)
		}
	}()

	await(t, "the reports have everything", func() bool {
		var orders struct {
			Rows []struct{ OrderID, Status string }
		}
		succeeds(t, reports, http.MethodGet, "/order-ledger.json"+query, nil, &orders)
		byStatus := map[string]int{}
		for _, row := range orders.Rows {
			byStatus[row.Status]++
		}

		var collections struct {
			Rows []struct {
				DeliveredCount             int
				CashExpected, CardExpected string
			}
		}

		succeeds(t, reports, http.MethodGet, "/expected-collections.json"+query, nil, &collections)
		delivered, cash, card := 0, new(big.Rat), new(big.Rat)
		for _, row := range collections.Rows { // one, unless it is about midnight
			delivered += row.DeliveredCount
			for sum, text := range map[*big.Rat]string{cash: row.CashExpected, card: row.CardExpected} {
				amount, ok := new(big.Rat).SetString(text)
				if !ok {
					t.Fatalf("%q is no amount", text)
				}
				sum.Add(sum, amount)
			}
		}

		var control struct{ Rows []struct{ Line, Ties string } }
		succeeds(t, reports, http.MethodGet, "/control-totals.json"+query, nil, &control)
		untied, tied := []string{}, 0
		for _, row := range control.Rows {
			switch row.Ties {
			case "yes":
				tied++
			case "no":
				untied = append(untied, row.Line)
			}
		}

		shown = fmt.Sprintf("orders %v, delivered %d, cash %s, card %s, untied %v", byStatus, delivered, cash.FloatString(2), card.FloatString(2), untied)

		return shown == want && tied > 0
	})

	if out, err := s.Command(t, stack.ReportingUser, "reconcile"); err != nil {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
}

// testRestart stops everything while an event still waits, and starts it again on
// the same data.
func testRestart(t *testing.T, s *scenario) {
	waiting := s.order(t, "Cash", "10.00")
	s.Worker.Stop()
	s.cancel(t, waiting)
	s.NothingDenied(t)
	before := s.Demo
	s.Stop()
	checkGone(t, before)
	s.options.Env = nil
	s.stackEnv = startStack(t, s.options)
	after := s.Demo
	if after.Account != before.Account || after.Fleet != before.Fleet || after.AdminKey != before.AdminKey ||
		after.Panel != before.Panel || after.ReportsToken != before.ReportsToken {
		t.Errorf("credentials changed:\n%+v\n%+v", before, after)
	}

	s.v.Client = s.v.As(after.BaseURL+"/api/vendor/v1", s.v.Bearer) // the old token
	s.replayed(t)
	s.notified(t, waiting, "Cancelled")
	testReportsBalance(t, s)
	testAuditAfterwards(t, s)
}
