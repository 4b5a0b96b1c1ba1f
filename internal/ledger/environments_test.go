package ledger

import (
	"errors"
	"testing"

	"vendorapi/internal/delivery"
)

// A sandbox and a production in one Redis share nothing: not an account, and of
// two accounts with one id not a place of a bucket.
//
//rule:what-the-service-does/facts-that/sandbox-a-sandbox-environment-exists limits/rules/4 decisions/sandbox
func TestEnvironments_HaveBucketsOfTheirOwn(t *testing.T) {
	box := openTest(t)
	live := openTest(t, sameDatabase(box), func(c *Config) { c.Environment = "production" })
	limits := plenty()
	limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 2, Seconds: 3600}}
	id := newAccount(t, box, limits)
	wantCode(t, errOf(live.Account(t.Context(), id)), delivery.CodeAccountNotFound)
	must(t, live.CreateAccount(t.Context(), &delivery.Account{ID: id, Name: "Vendor", Limits: limits}, testHash))
	for range 2 {
		get(box.Consume(t.Context(), id, EndpointOrders))(t)
	}
	var refusal *delivery.Error
	if _, err := box.Consume(t.Context(), id, EndpointOrders); !errors.As(err, &refusal) || refusal.Code != delivery.CodeRateLimited {
		t.Errorf("the sandbox's third: %v", err)
	}
	quota, err := live.Consume(t.Context(), id, EndpointOrders)
	check(t, err == nil && quota.Limit == 2 && quota.Remaining == 1, "production's first: %+v, %v", quota, err)
}
