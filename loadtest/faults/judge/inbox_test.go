package judge

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

var key = []byte("0123456789abcdef0123456789abcdef")

var secret = "whsec_" + base64.StdEncoding.EncodeToString(key)

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// send posts a webhook as the spec has it.
func send(ctx context.Context, url, eventID, body string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-Service-Event": "delivery.status_changed", "X-Service-Attempt": "2",
		"X-Service-Signature": "sha256=" + hex.EncodeToString(mac([]byte(secret), body)), "webhook-id": eventID, "webhook-timestamp": now,
		"webhook-signature": "v1," + base64.StdEncoding.EncodeToString(mac(key, eventID+"."+now+"."+body)),
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestInbox_RemembersEveryRequest(t *testing.T) {
	t.Parallel()
	inbox, err := NewInbox("account", secret)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(inbox)
	defer server.Close()
	order := delivery.MakeOrderID(0, 1, [12]byte{1})
	event := delivery.EventID(order, 1<<32|2)
	body := fmt.Sprintf(`{"eventId":%q,"event":"delivery.status_changed","occurredAt":"2026-11-21T21:00:00.5+03:00","data":{"orderId":%q,"externalOrderId":"e","status":"Assigned"}}`, event, order)
	for _, one := range []struct {
		name     string
		behave   int
		body     string
		answered int
	}{
		{"well", 0, body, 204},
		{"in trouble", 503, body, 503},
		{"well again", 0, body, 204},
		{"not the event of the header", 0, strings.Replace(body, `"eventId":"evt`, `"eventId":"xvt`, 1), 400},
	} {
		inbox.Behave(one.behave, 0)
		status, err := send(t.Context(), server.URL, event, one.body)
		if err != nil || status != one.answered {
			t.Fatalf("%s: answered %d, %v", one.name, status, err)
		}
	}
	if resp, err := http.Post(server.URL, "application/json", strings.NewReader(body)); err != nil || resp.Body.Close() != nil || resp.StatusCode != 401 {
		t.Fatalf("unsigned: %v, %v", resp, err)
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
		t.Errorf("not genuine: %+v, %+v", got[3], got[4])
	}
}

// A sender that leaves has no answer, whatever the receiver would have said.
func TestInbox_NoticesThatItsSenderLeft(t *testing.T) {
	t.Parallel()
	inbox, err := NewInbox("account", secret)
	if err != nil {
		t.Fatal(err)
	}
	inbox.Behave(0, time.Minute)
	server := httptest.NewServer(inbox)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := send(ctx, server.URL, "evt_1", "{}"); err == nil {
		t.Fatal("it answered at once")
	}
	for deadline := time.Now().Add(30 * time.Second); len(inbox.Arrivals()) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("it still waits")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := inbox.Arrivals()[0]; got.Answered != 0 || got.Ended.Sub(got.Began) > 30*time.Second {
		t.Errorf("%+v", got)
	}
}

func TestNewInbox_NeedsASecret(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]string{nil, {""}, {secret, ""}} {
		if _, err := NewInbox("account", secrets...); err == nil {
			t.Errorf("made one with %q", secrets)
		}
	}
}
