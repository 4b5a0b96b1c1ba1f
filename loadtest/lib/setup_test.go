//go:build long

package lib_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// misbehaviour prepares the service, or the settings, so that setup() cannot go on.
type misbehaviour func(api *vendorAPI, env settings)

func TestSetup_AbortsWithItsReasonAndNothingElse(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		prepare misbehaviour
		reason  string
	}{
		"no credentials": {
			prepare: func(_ *vendorAPI, env settings) { delete(env, "CLIENT_SECRET") },
			reason:  "set CLIENT_ID and CLIENT_SECRET, or ACCOUNTS",
		},
		"nothing answers": {
			prepare: func(api *vendorAPI, _ settings) { api.Close() },
			reason:  "nothing answers at http://127.0.0.1:",
		},
		"only a balancer answers": {
			prepare: func(api *vendorAPI, _ settings) { api.alwaysReply(postToken, badGateway) },
			reason:  "account 1 (" + recognisableClientID + ") gets no token: 502 <html><body>Bad Gateway",
		},
		"wrong credentials": {
			prepare: func(api *vendorAPI, _ settings) {
				api.alwaysReply(postToken, refuse(http.StatusUnauthorized, "INVALID_CREDENTIALS"))
			},
			reason: "account 1 (" + recognisableClientID + ") gets no token: 401 INVALID_CREDENTIALS said by the test",
		},
		"no token left": {
			prepare: func(api *vendorAPI, _ settings) { api.alwaysReply(postToken, limited(60, 60)) },
			reason:  "gets no token: 429 RATE_LIMITED",
		},
		"an answer without a token": {
			prepare: func(api *vendorAPI, _ settings) {
				api.alwaysReply(postToken, text(http.StatusOK, `{"data":{"accessToken":"token-that-nobody-may-see"}}`))
			},
			reason: "there is no Vendor API: POST /token is answered 200 without a token",
		},
		"a token that ends at once": {
			prepare: func(api *vendorAPI, _ settings) { api.shortenTokens(4) },
			reason:  "account 1 (" + recognisableClientID + "): POST /token is answered 200 without a token that is valid for five seconds",
		},
		"FLEET_ID of nobody, the store has its fleet": {
			prepare: func(_ *vendorAPI, env settings) { env["FLEET_ID"] = "fleet-of-nobody" },
			reason:  "FLEET_ID is fleet-of-nobody, which does not serve store loadtest-1; these do: fleet-1",
		},
		"FLEET_ID of nobody, the store has none yet": {
			prepare: func(api *vendorAPI, env settings) {
				env["FLEET_ID"] = "fleet-of-nobody"
				api.offer("fleet-1", "fleet-2")
			},
			reason: "FLEET_ID is fleet-of-nobody, which does not serve store loadtest-1; these do: fleet-1, fleet-2",
		},
		"several fleets": {
			prepare: func(api *vendorAPI, _ settings) {
				api.offer("fleet-1", "fleet-2")
			},
			reason: "several fleets serve store loadtest-1, set FLEET_ID to one of them: fleet-1, fleet-2",
		},
		"no fleet": {
			prepare: func(api *vendorAPI, _ settings) {
				api.offer()
			},
			reason: "no fleet serves store loadtest-1",
		},
		"no fleet, FLEET_ID is set": {
			prepare: func(api *vendorAPI, env settings) {
				env["FLEET_ID"] = "fleet-1"
				api.offer()
			},
			reason: "FLEET_ID is fleet-1, which does not serve store loadtest-1; these do: none",
		},
		"a store that is refused": {
			prepare: func(api *vendorAPI, _ settings) {
				api.alwaysReply(putStore, refuse(http.StatusUnprocessableEntity, "VALIDATION_ERROR"))
			},
			reason: "store loadtest-1 cannot be registered: 422 VALIDATION_ERROR",
		},
		"a fleet that is refused": {
			prepare: func(api *vendorAPI, _ settings) {
				api.offer("fleet-1")
				api.onceReply(putStore, nil, refuse(http.StatusConflict, "FLEET_UNAVAILABLE"))
			},
			reason: "store loadtest-1 cannot have the fleet fleet-1: 409 FLEET_UNAVAILABLE",
		},
		"a store in a garbled answer": {
			prepare: func(api *vendorAPI, _ settings) {
				api.alwaysReply(putStore, text(http.StatusOK, `{"data":{"availableFleets":[null,3,"fleet"]}}`))
			},
			reason: "no fleet serves store loadtest-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			env := api.settings(nil)
			c.prepare(api, env)

			r := play(t, "till.js", env)

			r.requireAborted(t, c.reason)
			if strings.Contains(r.rawLog, recognisableSecret) || strings.Contains(r.rawLog, "token-that-nobody-may-see") {
				t.Error("the log shows a secret")
			}
		})
	}
}

func TestSetup_AbortsWhereThereIsNoVendorAPI(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"not found":           {status: http.StatusNotFound, body: "<html>not found</html>"},
		"a page for any path": {status: http.StatusOK, body: "<html>welcome</html>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			site := httptest.NewServer(text(c.status, c.body).handler())
			t.Cleanup(site.Close)

			r := play(t, "till.js", settings{
				"BASE_URL": site.URL, "CLIENT_ID": recognisableClientID, "CLIENT_SECRET": recognisableSecret,
			})

			r.requireAborted(t, "BASE_URL is "+site.URL+", and there is no Vendor API")
		})
	}
}

func TestSetup_TakesTheFleet(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		offered []string
		chosen  string // FLEET_ID
		want    string
	}{
		"the only one that is offered":   {offered: []string{"fleet-7"}, want: "fleet-7"},
		"the one that FLEET_ID says":     {offered: []string{"fleet-1", "fleet-2"}, chosen: "fleet-2", want: "fleet-2"},
		"the only one, and FLEET_ID too": {offered: []string{"fleet-7"}, chosen: "fleet-7", want: "fleet-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.offer(c.offered...)

			r := play(t, "till.js", api.settings(settings{"FLEET_ID": c.chosen}))

			r.requireExit(t, exitHeld)
			fleet := api.chosenFleet()
			if fleet != c.want {
				t.Errorf("the store has the fleet %q, want %q", fleet, c.want)
			}

			registered := r.samplesOf(t, "stores_registered")
			if len(registered) != 1 || registered[0].Metadata["store"] != "loadtest-1" {
				t.Errorf("registered: %+v", registered)
			}
		})
	}
}

func TestSetup_GoesOnWhenTheFirstAnswersAreLost(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postToken, cut, badGateway)

	r := play(t, "till.js", api.settings(settings{"TOLERATES": "outage"}))

	r.requireExit(t, exitHeld)
	requireCount(t, "tokens were asked for", len(api.requests(postToken)), 3)
}
