package validate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/webhook"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func newInbox() *Inbox { return &Inbox{account: "account", secret: secret} }

// send posts a webhook as the worker does, signed or not; the result is the
// status of the answer.
func send(ctx context.Context, t *testing.T, inbox *Inbox, eventID, body string, signed bool) int {
	t.Helper()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	now := time.Now()
	standard, err := webhook.SignStandard(eventID, now, []byte(body), secret)
	if err != nil {
		t.Fatal(err)
	}

	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-Service-Event": "delivery.status_changed", "X-Service-Attempt": "2",
		"X-Service-Signature": webhook.Sign(secret, []byte(body)), "webhook-id": eventID,
		"webhook-timestamp": strconv.FormatInt(now.Unix(), 10), "webhook-signature": standard,
	} {
		if signed {
			req.Header.Set(name, value)
		}
	}

	answer := httptest.NewRecorder()
	inbox.ServeHTTP(answer, req)

	return answer.Code
}

func TestInbox_RemembersEveryRequest(t *testing.T) {
	t.Parallel()

	inbox := newInbox()
	order := delivery.MakeOrderID(0, 1, [12]byte{1})
	event := delivery.EventID(order, 1<<32|2)
	body := fmt.Sprintf(`{"eventId":%q,"event":"delivery.status_changed","occurredAt":"2026-11-21T21:00:00.5+03:00","data":{"orderId":%q,"externalOrderId":"e","status":"Assigned"}}`, event, order)
	for _, one := range []struct {
		name     string
		behave   int
		body     string
		signed   bool
		answered int
	}{
		{"well", 0, body, true, 204},
		{"in trouble", 503, body, true, 503},
		{"well again", 0, body, true, 204},
		{"not the event of the header", 0, strings.Replace(body, `"eventId":"evt`, `"eventId":"xvt`, 1), true, 400},
		{"unsigned", 0, body, false, 401},
	} {
		inbox.Behave(one.behave, 0)
		if status := send(t.Context(), t, inbox, event, one.body, one.signed); status != one.answered {
			t.Fatalf("%s: answered %d", one.name, status)
		}
	}

	got := inbox.Arrivals()
	if len(got) != 5 {
		t.Fatalf("%d arrivals", len(got))
	}

	first := got[0]
	if first.Account != "account" || first.EventID != event || first.Order != order.String() || first.External != "e" || first.Status != "Assigned" ||
		first.Attempt != 2 || !first.Occurred.Equal(begin.Add(500*time.Millisecond)) || first.Answered != 204 || first.Ended.Before(first.Began) || first.Invalid != "" {
		t.Errorf("%+v", first)
	}

	if got[1].Answered != 503 || got[1].Order != order.String() || got[1].Body != first.Body {
		t.Errorf("in trouble: %+v", got[1])
	}
	if got[3].Invalid == "" || got[4].Invalid == "" || got[3].Body == first.Body {
		t.Errorf("unverified: %+v, %+v", got[3], got[4])
	}
}

// A sender that leaves has no answer, whatever the receiver would have said.
func TestInbox_NoticesThatItsSenderLeft(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		inbox := newInbox()
		inbox.Behave(0, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		send(ctx, t, inbox, "evt_1", "{}", true)
		if got := inbox.Arrivals(); len(got) != 1 || got[0].Answered != 0 || got[0].Ended.Sub(got[0].Began) != 50*time.Millisecond {
			t.Errorf("%+v", got)
		}
	})
}
