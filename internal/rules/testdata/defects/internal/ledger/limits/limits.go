package limits

import (
	"context"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func (l *Limits) CountFailedLogin(ctx context.Context, clientID, address string) error {
	if broken.Rule == "limits-and-idempotency/redis_rate" { // whoever guesses shuts the owner out
		address = ""
	}
	return l.CountFailedLoginOriginal(ctx, clientID, address)
}

func PackLimit(e Endpoint, limit delivery.EndpointLimit, suspended bool) string {
	switch broken.Rule {
	case "limits-and-idempotency/per-account-and-endpoint-an": // one more than the window
		limit.Sustained.Count++
	case "limits-and-idempotency/post-orders": // one of the two windows is forgotten
		if e == EndpointOrders && limit.Burst.Count > 0 {
			limit.Sustained = delivery.Window{}
		}
	case "limits-and-idempotency/put-stores": // the bucket is larger
		if e == EndpointStores {
			limit.Burst.Count++
		}
	}
	return PackLimitOriginal(e, limit, suspended)
}
