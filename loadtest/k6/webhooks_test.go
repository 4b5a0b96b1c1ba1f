package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// newDeaf returns a deployment with an account that may have no webhook.
func newDeaf(t *testing.T) *deployment {
	t.Helper()
	api := newVendorAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"success": false, "message": "not today", "data": {"errorCode": "FORBIDDEN"}}`)
	})
	return &deployment{origin: "http://127.0.0.1", accounts: []*account{{label: "1", api: api}}}
}

func TestGivenReceivers_ListenOnlyIfAWebhookArrives(t *testing.T) {
	t.Parallel()

	o := receiverOptions{url: "https://receiver.example.com", addr: stack.FreeAddr()}

	_, err := givenReceivers(t.Context(), o, newDeaf(t), "")

	if err == nil || !strings.Contains(err.Error(), "no webhook arrives at https://receiver.example.com") || !strings.Contains(err.Error(), "not today") {
		t.Error(err)
	}

	// A server may close its listener a moment later, and a child that is being started has it until then.
	err = harness.Await(t.Context(), "the address", 10*time.Second, 10*time.Millisecond, func() (bool, error) {
		listener, err := net.Listen("tcp", o.addr)
		if err != nil {
			return false, nil
		}
		return true, listener.Close()
	})
	if err != nil {
		t.Errorf("the address is still in use: %v", err)
	}
}

func TestGivenReceivers_NeedAnAddressAndAccountsWithoutAWebhook(t *testing.T) {
	t.Parallel()

	whole := receiverOptions{url: "https://receiver.example.com", addr: "127.0.0.1:0"}
	for _, c := range []struct {
		options     receiverOptions
		withWebhook string
		says        string
	}{
		{options: receiverOptions{url: whole.url}, says: "belong together"},
		{options: receiverOptions{addr: whole.addr}, says: "belong together"},
		{options: whole, withWebhook: "account 1", says: "account 1 has a webhook already"},
	} {
		_, err := givenReceivers(t.Context(), c.options, newDeaf(t), c.withWebhook)

		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.options, err, c.says)
		}
	}
}

func TestLoopbackReceivers_AreNotUsedIfNoWebhookArrives(t *testing.T) {
	t.Parallel()

	w, err := loopbackReceivers(t.Context(), newDeaf(t))

	if err != nil || !strings.Contains(w.description(), "not checked: no webhook arrives") {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()

	for origin, want := range map[string]bool{
		"http://localhost:8080":   true,
		"http://127.0.0.1:8080":   true,
		"http://[::1]:8080":       true,
		"https://api.example.com": false,
		"http://10.0.0.7":         false,
	} {
		d := &deployment{origin: origin}
		if d.isLoopback() != want {
			t.Errorf("%s: loopback %v", origin, !want)
		}
	}
}

func TestReceivers_PassAWebhookToItsAccountOnly(t *testing.T) {
	t.Parallel()

	r, err := newReceivers("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(r.close)
	w := httptest.NewRecorder()

	r.mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/2", nil))

	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("a webhook of an account that is not played was answered with %d, so it is not sent again", w.Code)
	}
}
