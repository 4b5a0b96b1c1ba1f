//go:build long

package systemtest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack/client"
)

// Whoever tries DELETE /webhook on the demo's account takes the receiver's secret
// with it. The next make run registers the receiver anew.
func TestRun_RegistersItsReceiverAgainAfterItWasRemoved(t *testing.T) {
	t.Parallel()
	dir, addrs := t.TempDir(), ownAddrs(t)
	d := startDriver(t, dir, addrs...)
	before := d.demo(t)
	login := func() *client.Client {
		demo := d.demo(t)
		v, err := client.New(demo.BaseURL, 1).As(demo.BaseURL+"/api/vendor/v1", "").Login(t.Context(), "/token", demo.Account.ClientID, demo.Account.ClientSecret)
		must(t, err)
		return v
	}
	must(t, login().Call(t.Context(), http.MethodDelete, "/webhook", nil, nil))
	d.interrupt(t)

	d = startDriver(t, dir, addrs...)
	if after := d.demo(t); after.Webhook.Secret == before.Webhook.Secret || after.Account != before.Account {
		t.Errorf("%+v, before %+v", after, before)
	}
	must(t, login().Call(t.Context(), http.MethodPost, "/webhook/test", nil, nil))
	await(t, "the receiver logs the test", func() bool {
		log, err := os.ReadFile(filepath.Join(dir, ".data", "logs", "receive.log"))
		must(t, err)
		return strings.Contains(string(log), "webhook.test")
	})
	d.interrupt(t)
}
