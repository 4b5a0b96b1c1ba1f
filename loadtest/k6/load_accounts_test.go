package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack/client"
)

func TestAccountChanges_Validate(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		changes accountChanges
		says    string // empty: they are all right
	}{
		{accountChanges{count: 1000, orders: 100_000}, ""},
		{accountChanges{restore: true, suspend: true}, ""},
		{accountChanges{}, "say what to do"},
		{accountChanges{count: 1001}, "-count is 1001"},
		{accountChanges{count: -1}, "-count is -1"},
		{accountChanges{orders: 100_001}, "-orders is 100001"},
		{accountChanges{orders: 119}, "-orders is 119"},
		{accountChanges{orders: -1}, "-orders is -1"},
		{accountChanges{orders: 120}, ""},
		{accountChanges{orders: 120, restore: true}, "choose one"},
	} {
		err := c.changes.validate()

		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.changes, err, c.says)
		}
	}
}

// The service may change the limits and its answer be lost. What the account had before must be in the file then.
func TestRaise_WritesTheLimitsOfBeforeFirst(t *testing.T) {
	t.Parallel()

	var change struct {
		Limits map[string]map[string]json.RawMessage
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusBadGateway)
			return
		}

		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"success": true, "data": map[string]any{"limits": contractLimits()}}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))

	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "accounts.json")
	file := &accountsFile{path: path, accounts: []accountRecord{{AccountID: "a1", ClientID: "ven_1", ClientSecret: "s1", Limits: contractLimits()}}}

	err := file.raise(t.Context(), client.New(server.URL, 1), 300)

	if err == nil || !strings.Contains(err.Error(), "change the limits of account a1") {
		t.Error(err)
	}
	stored, err := readAccountsFile(path)
	if err != nil || len(stored.accounts) != 1 || stored.accounts[0].Before == nil || stored.accounts[0].Before.burstOrders() != 120 {
		t.Errorf("%+v, %v", stored, err)
	}
	if burst := string(change.Limits["cancel"]["burst"]); burst != "null" {
		t.Errorf("a burst that there is not is sent as %q, so that one would stay", burst)
	}
}

func TestRaisedLimits_AreNeverFewerThanTheContractExceptOrders(t *testing.T) {
	t.Parallel()

	few, many := raisedLimits(10), raisedLimits(1200)

	if few.Cancel.Sustained.Count != 600 || few.OrderStatus.Sustained.Count != 3000 || few.Token.Sustained.Count != 600 {
		t.Errorf("%+v", few)
	}
	if many.burstOrders() != 1200 || many.Orders.Sustained.Count != 7200 || many.Cancel.Sustained.Count != 7200 || many.OrderStatus.Sustained.Count != 7200 {
		t.Errorf("%+v", many)
	}
}
