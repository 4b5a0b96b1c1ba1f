package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/template"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/reporting/closing"
)

// scene is what the panel shows besides the day: neighbours whose receivers fail, orders that are in progress, the days
// before, and a closed month.
type scene struct {
	*harness.System

	// healthy and unreachable are neighbours, by what their receivers are.
	healthy, unreachable *stack.Vendor

	deliveredOrder string // the id of an order that has been delivered
	trackingPath   string // the path of the page of an order that a courier brings
	month          closing.Month
}

// neighbourOrders is how many orders each neighbour sends.
const neighbourOrders = 20

// openNeighbours opens four vendors beside the day's and sends their orders. Their receivers answer, fail, say that
// they are gone, and are unreachable.
func (s *scene) openNeighbours(ctx context.Context) (err error) {
	s.healthy, err = s.openNeighbour(ctx, "Kasa Defteri", http.StatusNoContent, "")
	if err != nil {
		return err
	}

	const failure = "SQLSTATE[HY000] [2002] Connection refused"
	failing, err := s.openNeighbour(ctx, "Adisyo Bulut", http.StatusInternalServerError, failure)
	if err != nil {
		return err
	}
	gone, err := s.openNeighbour(ctx, "Mutfak Takip", http.StatusGone, "bu uç kapatıldı")
	if err != nil {
		return err
	}
	s.unreachable, err = s.openUnreachable(ctx, "Lezzet Yazılım")
	if err != nil {
		return err
	}

	for _, v := range []*stack.Vendor{s.healthy, failing, gone, s.unreachable} {
		for range neighbourOrders {
			if err := v.Call(ctx, http.MethodPost, "/orders", v.Order(nil), nil); err != nil {
				return err
			}
		}
	}

	return nil
}

// openNeighbour opens a vendor whose receiver always answers with the given status and text.
func (s *scene) openNeighbour(ctx context.Context, name string, status int, text string) (*stack.Vendor, error) {
	path := fmt.Sprintf("/answers-%d", status)
	s.Hooks.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	})
	return s.OpenVendor(ctx, stack.VendorOptions{Name: name, WebhookURL: s.HooksURL + path})
}

// openUnreachable opens a vendor at whose address nobody listens, with an endpoint that counts as unreachable because
// an event has been given up: one that is nearly a day old, so that its first attempt is its last. Events that come
// after it wait.
func (s *scene) openUnreachable(ctx context.Context, name string) (*stack.Vendor, error) {
	v, err := s.OpenVendor(ctx, stack.VendorOptions{Name: name, WebhookURL: "http://" + stack.FreeAddr() + "/hooks"})
	if err != nil {
		return nil, err
	}
	account, err := delivery.ParseAccountID(v.AccountID)
	if err != nil {
		return nil, err
	}

	l, err := ledger.Open(ctx, ledger.Config{URL: s.Redis.URL, Environment: "sandbox"})
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // nothing waits to be written

	err = l.Webhooks.Publish(ctx, accounts.Notice{
		Account:    account,
		Type:       delivery.StoreActivated,
		OccurredAt: time.Now().Add(-24*time.Hour + 8*time.Second),
		Data:       fmt.Appendf(nil, `{"externalStoreId":%q}`, v.Store),
	})
	if err != nil {
		return nil, err
	}

	return v, awaitStatus(ctx, s.Admin, "/accounts/"+v.AccountID+"/webhook", "unreachable")
}

// awaitStatus reads a path until its member status is as given.
func awaitStatus(ctx context.Context, api *client.Client, path, status string) error {
	return harness.Await(ctx, path+" to be "+status, 3*time.Minute, 300*time.Millisecond, func() (bool, error) {
		var answer struct{ Status string }
		err := api.Call(ctx, http.MethodGet, path, nil, &answer)
		return answer.Status == status, err
	})
}

// complete adds the days before, a closed month and orders in progress.
func (s *scene) complete(ctx context.Context) (err error) {
	for i, share := range shares {
		if err := s.addEarlierDay(ctx, i+1, share); err != nil {
			return err
		}
	}

	if err := s.closeMonth(ctx); err != nil {
		return fmt.Errorf("close a month: %w", err)
	}
	if err := s.leaveInProgress(ctx); err != nil {
		return fmt.Errorf("leave orders in progress: %w", err)
	}

	s.deliveredOrder, err = harness.Query(ctx, s.ClickHouseURL(), "SELECT order_id FROM delivery.orders FINAL "+
		"WHERE status = 'Delivered' AND business_day >= toDate(now('Etc/GMT-3')) LIMIT 1")

	return err
}

// shares are how busy the days before today were, yesterday first, in percent of today: quiet ones in the middle of a
// week, full ones at its end.
var shares = []int{82, 61, 55, 58, 66, 91, 97, 78, 60, 52, 57, 63, 88}

//go:embed earlier.sql
var earlierSQL string

var earlier = template.Must(template.New("earlier").Parse(earlierSQL))

// addEarlierDay copies a share of today's orders, in percent, to some days ago.
func (s *scene) addEarlierDay(ctx context.Context, daysAgo, share int) error {
	var statement strings.Builder
	if err := earlier.Execute(&statement, map[string]int{"DaysAgo": daysAgo, "Share": share}); err != nil {
		return err
	}
	if _, err := harness.Query(ctx, s.ClickHouseURL(), statement.String()); err != nil {
		return fmt.Errorf("%d days ago: %w", daysAgo, err)
	}
	return nil
}

// closeMonth closes the latest month that can be closed, with two days of orders in it.
func (s *scene) closeMonth(ctx context.Context) error {
	s.month = closing.MonthOf(closing.MonthOf(time.Now().Add(-closing.Grace)).AddDate(0, 0, -1))
	for _, dayOfMonth := range []int{10, 11} {
		age := time.Since(s.month.AddDate(0, 0, dayOfMonth-1))
		if err := s.addEarlierDay(ctx, int(age/(24*time.Hour)), 100); err != nil {
			return err
		}
	}

	commands := [][]string{
		{"hold", s.month.String(), "--user", s.Demo.Panel.User, "--note", "exceptions discussed with the fleets"},
		{"close", s.month.String(), "--user", stack.SecondUser},
	}
	for _, command := range commands {
		out, err := s.Month(ctx, command...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", command, err, out)
		}
	}

	return nil
}

// leaveInProgress leaves orders of the healthy neighbour in every status. The courier of the last one is on the way to
// the recipient.
func (s *scene) leaveInProgress(ctx context.Context) error {
	var created struct{ OrderID, TrackingURL string }
	for _, status := range []string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering"} {
		order := s.healthy.Order(func(o map[string]any) {
			o["packageNote"] = "SIM:HOLD=" + status
			o["dropoff"] = map[string]any{
				"text":     "Bağdat Caddesi No: 212, Kadıköy/İstanbul",
				"latitude": 40.9696, "longitude": 29.0568,
			}
		})
		if err := s.healthy.Call(ctx, http.MethodPost, "/orders", order, &created); err != nil {
			return err
		}
	}

	link, err := url.Parse(created.TrackingURL)
	if err != nil {
		return err
	}

	s.trackingPath = link.Path

	return awaitStatus(ctx, s.Fleet, "/jobs/"+created.OrderID, "Delivering")
}
