package systemtest

import (
	"testing"

	"vendorapi/internal/systemtest/browser"
)

// The documentation works in a browser that obeys its policy: the viewer shows
// what can be called and what is sent, and nothing is asked of another host (a
// page's end judges that, and every error in its console).
func TestDocumentation_InABrowser(t *testing.T) {
	t.Parallel()
	s := sharedStack(t)
	chromium := browser.Start(t)
	vendor := chromium.Open(t, s.Demo.BaseURL)
	vendor.Visit("/docs", 200)
	vendor.WaitText("Create an order", "Webhooks", "delivery.status_changed", "fleet.payment_overdue")
	vendor.Follow("Ten minutes")
	vendor.WaitText("From zero to the first delivery", s.Demo.BaseURL+"/api/vendor/v1")
	vendor.Usable()
	vendor.Follow("Error codes")
	vendor.WaitText("DUPLICATE_ORDER")
	vendor.Usable()
	private := chromium.Open(t, s.Demo.OpsURL)
	private.Visit("/docs", 200)
	private.WaitText("Take a job")
	private.Follow("Admin API")
	private.WaitText("Announce an overdue balance")
}
