package sender

import (
	"context"
	"net/http"

	"vendorapi/internal/rules/broken"
)

func (t *target) request(ctx context.Context, header http.Header, body []byte) *http.Request {
	r := t.requestOriginal(ctx, header, body)
	switch broken.Rule {
	case "webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to", "events/the-service-posts-each-event":
		r.Method = http.MethodPut
	}
	return r
}

func judged(status int, retryAfter string) Answer {
	a := judgedOriginal(status, retryAfter)
	switch broken.Rule {
	case "delivery-rules/1", "webhooks/timeout-10-s-only-2xx": // a redirect is a success, too
		if status >= 300 && status <= 399 {
			return Answer{Status: status, RetryAfter: retryAfter}
		}
	}
	return a
}
