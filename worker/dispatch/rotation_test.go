package dispatch

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/webhook"
)

// The spec's header has room for one signature: of the old secret until a test
// ping has shown that the receiver knows the new one, and for a day at most.
//
//rule:admin-api/post-accounts-id-webhook-rotate webhooks/the-secret-is-shown-as webhooks/after-a-rotation-the-standard
func TestHeaders_ChangeToTheNewSecretAfterAPingOrADay(t *testing.T) {
	old, renewed, body := webhook.NewSecret(), webhook.NewSecret(), []byte(`{"x":1}`)
	rotated := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at         time.Time
		proven     bool
		kind       delivery.EventType
		spec       string
		signatures int
	}{
		"at once":            {rotated, false, delivery.StatusChanged, old, 2},
		"the ping":           {rotated, false, delivery.WebhookTest, renewed, 2},
		"proven":             {rotated.Add(time.Minute), true, delivery.StatusChanged, renewed, 2},
		"the day's last":     {rotated.Add(24*time.Hour - time.Second), false, delivery.StatusChanged, old, 2},
		"after a day":        {rotated.Add(24 * time.Hour), false, delivery.StatusChanged, renewed, 1},
		"after a day, store": {rotated.Add(25 * time.Hour), false, delivery.StoreActivated, renewed, 1},
	} {
		a := someAttempt(1, rotated)
		a.Type = c.kind
		a.receiver.Secret, a.receiver.Proven = renewed, c.proven
		a.receiver.Earlier = []ledger.EarlierSecret{{Secret: old, Until: rotated.Add(24 * time.Hour)}}
		sent, err := headers(a, c.at, body)
		if err != nil {
			t.Fatal(err)
		}

		h := asReceived(sent)
		if h.Get(webhook.HeaderSignature) != webhook.Sign(c.spec, body) {
			t.Errorf("%s: the spec's header is of another secret", name)
		}

		standard := h.Get(webhook.HeaderStandardSignature)
		if n := len(strings.Fields(standard)); n != c.signatures {
			t.Errorf("%s: %d signatures", name, n)
		}

		for _, secret := range []string{renewed, old}[:c.signatures] {
			want, err := webhook.SignStandard(a.EventID, c.at, body, secret)
			if err != nil || !slices.Contains(strings.Fields(standard), want) {
				t.Errorf("%s: %q lacks %s, %v", name, standard, want, err)
			}
		}

		if stamp := h.Get(webhook.HeaderTimestamp); stamp != strconv.FormatInt(c.at.Unix(), 10) || h.Get(webhook.HeaderID) != a.EventID {
			t.Errorf("%s: %v", name, h)
		}
	}
}
