package sender

import (
	"net/http"

	"vendorapi/internal/rules/broken"
)

func (t *target) method() string {
	switch broken.Rule {
	case "webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to", "events/the-service-posts-each-event":
		return http.MethodPut
	}
	return t.methodOriginal()
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
