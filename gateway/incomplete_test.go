package main

import (
	"fmt"
	"slices"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// While one of several servers does not answer, fleets and operators see what the others keep, and that
// something is missing. A gateway that may not read one partition stands for it: Redis refuses what
// concerns that partition and answers the rest.
//
//rule:fleet-api/get-jobs-status-searching-cursor
func TestLists_SayWhenAServerDoesNotAnswer(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "a", stack.WorkerUser: "b", stack.ReportingUser: "c", stack.BackupUser: "d", stack.OperatorUser: "e",
	}}})
	e := newEnvOn(t, server, nil).withStore("")
	lost := e.account
	partition := partitionOf(t, e.created("POS-1"))
	e.account = e.newAccount("")
	for e.activeStore(e.account, e.courier, "s1"); partitionOf(t, e.created("POS-1")) == partition; {
		e.account = e.newAccount("")
		e.activeStore(e.account, e.courier, "s1")
	}

	kept := e.account
	for _, account := range []party{lost, kept} {
		want(t, e.send(request{method: "PUT", url: e.vendor + "/api/vendor/v1/webhook", token: account.token, body: `{"url":"https://pos.example/hook"}`}), 200, "")
	}

	e.playWorker() // which lists the jobs for the fleet
	e.await("both jobs", func() bool { return len(accountsIn(e.fleet(e.courier, "GET", "/jobs", "").list("jobs"), "store")) >= 2 })
	for _, path := range []string{"/jobs", "/stores"} {
		if whole := want(t, e.fleet(e.courier, "GET", path, ""), 200, ""); whole.data["incomplete"] != nil {
			t.Errorf("GET %s is incomplete while everything answers: %s", path, whole.body)
		}
	}

	digits := fmt.Sprintf("%02x", partition)
	others := []string{"~{sg*", "~rate:*", fmt.Sprintf("~{s[^%c]*", digits[0]), fmt.Sprintf("~{s%c[^%c]*", digits[0], digits[1])}
	setUser := slices.Concat([]string{"ACL", "SETUSER", stack.GatewayUser, "resetkeys"}, others)
	if _, err := server.Command(t.Context(), setUser...); err != nil {
		t.Fatal(err)
	}

	jobs := want(t, e.fleet(e.courier, "GET", "/jobs", ""), 200, "", "incomplete", true, "cursor", "")
	if found := accountsIn(jobs.list("jobs"), "store"); !slices.Contains(found, kept.id) || slices.Contains(found, lost.id) {
		t.Errorf("jobs of %v, want those of %s without those of %s", found, kept.id, lost.id)
	}

	stores := want(t, e.fleet(e.courier, "GET", "/stores", ""), 200, "", "incomplete", true)
	if found := accountsIn(stores.list("stores"), ""); !slices.Contains(found, kept.id) || slices.Contains(found, lost.id) {
		t.Errorf("stores of %v, want those of %s without those of %s", found, kept.id, lost.id)
	}

	accounts := want(t, e.admin("GET", "/accounts", ""), 200, "", "incomplete", true)
	if found := accountsIn(accounts.list("accounts"), ""); !slices.Contains(found, kept.id) || slices.Contains(found, lost.id) {
		t.Errorf("accounts %v, want %s without %s", found, kept.id, lost.id)
	}

	webhooks := want(t, e.admin("GET", "/webhooks", ""), 200, "", "incomplete", true)
	if found := accountsIn(webhooks.list("webhooks"), ""); !slices.Equal(found, []string{kept.id}) {
		t.Errorf("receivers of %v, want that of %s", found, kept.id)
	}

	// What goes out once a day does not go by a part of the stores.
	want(t, e.tryAdmin("POST", "/fleets/"+e.courier.id+"/payment-overdue", ""), 503, "SERVICE_UNAVAILABLE")
	// The account itself waits, and the other one does not notice.
	want(t, e.order(orderBody("POS-2"), ""), 201, "")
	e.account = lost
	want(t, e.order(orderBody("POS-2"), ""), 503, "SERVICE_UNAVAILABLE")
}

func partitionOf(t *testing.T, order string) int {
	t.Helper()
	id, err := delivery.ParseOrderID(order)
	if err != nil {
		t.Fatal(err)
	}
	return id.Partition()
}

// accountsIn lists the accounts of listed objects, or of a member of each.
func accountsIn(listed []map[string]any, member string) (ids []string) {
	for _, one := range listed {
		if member != "" {
			one = one[member].(map[string]any)
		}
		ids = append(ids, one["accountId"].(string))
	}
	return ids
}
