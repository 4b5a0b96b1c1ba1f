package webhook

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(MaxAttempts, 14, "14 attempts: the first at once")
	decisions.Promises(secretSize, 32, "`whsec_<base64 of 32 bytes>`")

	specification := promises.In(t, promises.Specification)
	specification.Promises(Window, 24*time.Hour, "Webhook retry window | 24 hours")
}
