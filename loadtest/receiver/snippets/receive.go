// Package snippets receives webhooks the way a vendor does who has pasted this
// file: it does nothing else, and refuses what is not signed or not fresh.
package snippets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Receiver is an http.Handler. What it remembers belongs in your database: the
// eventId as a unique key, written in one transaction with the order.
type Receiver struct {
	Secrets []string         // whole, "whsec_…"; after a rotation the new one beside the old for 24 h, then POST /webhook/test
	Seen    map[string]bool  // by eventId
	Orders  map[string]Order // by orderId
	mu      sync.Mutex
}

// Order is the last thing that happened to an order.
type Order struct {
	Status string
	At     time.Time
}

// Rank orders the statuses; a terminal one is the last of an order.
var Rank = map[string]int{
	"Searching": 1, "Assigned": 2, "PickingUp": 3, "PickedUp": 4, "Delivering": 5,
	"Delivered": 6, "Failed": 6, "Cancelled": 6,
}

// ServeHTTP verifies before it parses, and answers as soon as the event is stored.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 256<<10))
	if err != nil {
		http.Error(w, "body not readable", http.StatusBadRequest)
		return
	}

	if err := Verify(r.Secrets, req.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}

	var event struct {
		EventID    string          `json:"eventId"`
		Event      string          `json:"event"`
		OccurredAt time.Time       `json:"occurredAt"`
		Data       json.RawMessage `json:"data"`
	}

	var order struct{ OrderID, Status string }
	if json.Unmarshal(body, &event) != nil || event.EventID == "" {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	// What has arrived before, and types that are not known, are answered 2xx too.
	if !r.Seen[event.EventID] && event.Event == "delivery.status_changed" && json.Unmarshal(event.Data, &order) == nil {
		known, next := r.Orders[order.OrderID], Order{order.Status, event.OccurredAt}
		// Events may overtake each other; steps that were skipped have the same time.
		if next.At.After(known.At) || next.At.Equal(known.At) && Rank[next.Status] > Rank[known.Status] {
			r.Orders[order.OrderID] = next
		}
	}

	r.Seen[event.EventID] = true
	w.WriteHeader(http.StatusNoContent)
}

// Verify is nil when a webhook is the service's and at most five minutes old.
// body is what came over the wire, before any parsing.
func Verify(secrets []string, header http.Header, body []byte, now time.Time) error {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	fresh := err == nil && now.Sub(time.Unix(seconds, 0)).Abs() <= 5*time.Minute
	own, standard := false, false
	for _, secret := range secrets {
		// The service's signature: of the body, keyed with the text of the secret.
		want := "sha256=" + hex.EncodeToString(sum([]byte(secret), body))
		own = hmac.Equal([]byte(want), []byte(header.Get("X-Service-Signature"))) || own
		// Standard Webhooks: of id, time and body, keyed with the secret's bytes.
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		want = "v1," + base64.StdEncoding.EncodeToString(sum(key, []byte(id+"."+timestamp+"."), body))
		for _, got := range strings.Fields(header.Get("webhook-signature")) { // two after a rotation
			standard = err == nil && hmac.Equal([]byte(want), []byte(got)) || standard
		}
	}

	switch {
	case !own:
		return errors.New("signature does not match")
	case !fresh:
		return errors.New("timestamp is missing, too old or too new")
	case !standard:
		return errors.New("webhook-signature does not match")
	}

	return nil
}

func sum(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}
