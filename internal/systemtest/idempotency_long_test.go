//go:build long

package systemtest

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"vendorapi/internal/stack/client"
)

// Two hundred creations at once that mean the same order, told apart by key
// and body.
func TestCreateOrder_TwoHundredAtOnceMakeOneOrder(t *testing.T) {
	t.Parallel()
	h := newHouse(t, sharedStack(t))
	const n = 200
	same := func(b map[string]any, _ int) map[string]any { return b }
	other := func(b map[string]any, i int) map[string]any {
		b["orderAmount"] = i
		return b
	}
	for name, c := range map[string]struct {
		key     string
		body    func(map[string]any, int) map[string]any
		created int // answers 201; all others must be 409 DUPLICATE_ORDER
	}{
		"one key, one body":    {"k", same, n},
		"one key, many bodies": {"k", other, 1},
		"no key, one body":     {"", same, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := h.vendor(t, raised)
			answers := v.atOnce(t, n, c.key, func(i int) []byte {
				body, err := json.Marshal(c.body(v.sameOrder(), i))
				must(t, err)
				return body
			})
			created, replayed := map[string]int{}, 0
			for _, a := range answers {
				switch {
				case a.Status == http.StatusCreated:
					created[string(a.Raw)]++
				case a.Status != http.StatusConflict || a.Code != "DUPLICATE_ORDER":
					t.Errorf("answered %s", a.Raw)
				}
				if a.Header.Get("Idempotent-Replayed") == "true" {
					replayed++
				}
			}
			if len(created) != 1 {
				t.Fatalf("%d different orders: %v", len(created), created)
			}
			for raw, times := range created {
				if times != c.created || replayed != c.created-1 {
					t.Errorf("%d answers 201, %d of them replayed, want %d: %s", times, replayed, c.created, raw)
				}
			}
		})
	}
}

// sameOrder is a body that is the same at every call.
func (v *vendor) sameOrder() map[string]any {
	return v.order(func(o map[string]any) { o["externalOrderId"] = "the-one" })
}

// atOnce sends n creations that are all ready before the first one goes.
func (v *vendor) atOnce(t *testing.T, n int, key string, body func(int) []byte) []*client.Answer {
	t.Helper()
	answers := make([]*client.Answer, n)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	var headers []string
	if key != "" {
		headers = []string{"X-Idempotency-Key", key}
	}
	for i := range n {
		prepared := body(i)
		wg.Go(func() {
			<-begin
			a, err := v.Do(t.Context(), http.MethodPost, "/orders", prepared, headers...)
			if err != nil {
				t.Error(err)
				a = &client.Answer{}
			}
			answers[i] = a
		})
	}
	close(begin)
	wg.Wait()
	return answers
}
