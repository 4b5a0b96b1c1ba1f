package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Changes of one record that meet are done or refused, or are asked to come again: none is
// INTERNAL_ERROR, which is for defects.
func TestChanges_ManyAtOnceAreNeverAnInternalError(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	e.admin("PATCH", "/fleets/"+e.courier.id, `{"requestsPerSecond":10000}`)
	want(t, e.call("PUT", "/webhook", `{"url":"https://vendor.example/hook"}`), 200, "")
	account, fleet := "/accounts/"+e.account.id, "/fleets/"+e.courier.id
	store := account + "/stores/s1"

	type change struct {
		name    string
		call    func(n int) answer
		allowed []string // codes of refusals besides SERVICE_UNAVAILABLE
	}

	admin := func(method, path, body string) func(n int) answer {
		return func(n int) answer {
			return e.tryAdmin(method, path, strings.ReplaceAll(body, "%d", strconv.Itoa(n+1)))
		}
	}

	for _, c := range []change{
		{"name of an account", admin("PATCH", account, `{"name":"Vendor %d"}`), nil},
		{"limits of an account", admin("PATCH", account, `{"limits":{"orders":{"burst":{"count":%d,"seconds":1}}}}`), nil},
		{"fleet", admin("PATCH", fleet, `{"avgDeliveryMinutes":%d}`), nil},
		{"account's credentials", admin("POST", account+"/credentials", ""), []string{"TOO_MANY_SECRETS"}},
		{"fleet's credentials", admin("POST", fleet+"/credentials", ""), []string{"TOO_MANY_SECRETS"}},
		{"webhook's limits", admin("PATCH", account+"/webhook", `{"maxInFlight":%d}`), nil},
		{"webhook's secret", admin("POST", account+"/webhook/rotate", ""), []string{"TOO_MANY_SECRETS"}},
		{"webhook's URL", admin("PUT", account+"/webhook", `{"url":"https://vendor.example/%d"}`), nil},
		{"couriers", func(n int) answer {
			return e.fleet(e.courier, "PUT", "/availability", fmt.Sprintf(`{"couriers":%d}`, n+1))
		}, nil},
		{"registration of a store", func(n int) answer {
			return e.putStore(e.account, "s1", fmt.Sprintf(`{"name":"Branch %d"}`, n))
		}, nil},
		{"new store", func(n int) answer { return e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id)) }, nil},
		{"closing date of a store", func(n int) answer {
			return e.tryAdmin("POST", store+"/migrate", fmt.Sprintf(`{"closingDate":"2099-01-%02d"}`, n%28+1))
		}, nil},
		{"answer to a new store", func(n int) answer {
			if n%2 == 0 {
				return e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/s2/confirm", "")
			}
			return e.tryAdmin("POST", account+"/stores/s2/reject", "")
		}, []string{"STORE_NOT_FOUND", "STORE_NOT_PENDING"}},
		{"deactivation of a store", admin("POST", store+"/deactivate", `{"reason":"VendorRequest"}`), []string{"STORE_NOT_CONFIGURED"}},
		{"removal of the webhook", func(n int) answer { return e.call("DELETE", "/webhook", "") }, []string{"WEBHOOK_NOT_CONFIGURED"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all sync.WaitGroup
			answers := make([]answer, 40)
			for n := range answers {
				all.Go(func() { answers[n] = c.call(n) })
			}

			all.Wait()

			done := 0
			for _, a := range answers {
				isAskedAgain := a.status == 503 && a.code == "SERVICE_UNAVAILABLE" && a.header.Get("Retry-After") != ""
				switch {
				case a.status == 200:
					done++
				case !isAskedAgain && !slices.Contains(c.allowed, a.code):
					t.Errorf("%d %s", a.status, a.body)
				}
			}

			if done == 0 {
				t.Errorf("none of %d was done: %s", len(answers), answers[0].body)
			}
		})
	}
}
