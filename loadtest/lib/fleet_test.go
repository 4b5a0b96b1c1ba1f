//go:build long

package lib_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// fleetSettings are those of a script that plays a fleet of the service.
func (a *vendorAPI) fleetSettings() settings {
	return settings{
		"OPS_URL":             a.URL + "/api/fleet/v1/",
		"FLEET_CLIENT_ID":     "fleet-of-the-test",
		"FLEET_CLIENT_SECRET": recognisableSecret,
	}
}

// seen is what testdata/fleet.js notes.
type seen struct {
	Jobs     []string `json:"jobs"`
	Status   int      `json:"status"`   // of the last page
	Statuses []int    `json:"statuses"` // of three requests at once
}

func TestFleet_SeesEveryPageOfItsJobs(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "fleet.js", api.fleetSettings())

	found := notes[seen](t, r)
	if len(found) != 1 || !slices.Equal(found[0].Jobs, []string{"1", "2", "3"}) {
		t.Errorf("the fleet saw %+v", found)
	}

	requireCount(t, "tokens were asked for", len(api.requests(fleetToken)), 1)
}

func TestFleet_GoesOnAfterAnswersOfAnyKind(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		reply  reply
		status int
	}{
		"no answer":       {reply: cut, status: 0},
		"a broken answer": {reply: cutBody(http.StatusOK), status: 0},
		"a bad gateway":   {reply: badGateway, status: http.StatusBadGateway},
		"null":            {reply: text(http.StatusOK, "null"), status: http.StatusOK},
		"jobs of no kind": {reply: text(http.StatusOK, `{"data":{"jobs":7}}`), status: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.alwaysReply(fleetJobs, c.reply)

			r := play(t, "fleet.js", api.fleetSettings())

			r.requireNoException(t)
			found := notes[seen](t, r)
			if len(found) != 1 {
				t.Fatalf("%d notes, want 1", len(found))
			}

			all := []int{c.status, c.status, c.status}
			if len(found[0].Jobs) != 0 || found[0].Status != c.status || !slices.Equal(found[0].Statuses, all) {
				t.Errorf("the fleet saw %+v, want the status %d", found[0], c.status)
			}

			r.requireLevel(t, answeredLevel, c.status == http.StatusOK)
			r.requireExit(t, exitLevelsNotHeld)
		})
	}
}

// The service's tokens are always due, because they end within the time of a renewal.
func TestFleet_GoesOnWhenARenewalIsRefused(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.shortenTokens(200)
	api.alwaysReply(fleetToken, limited(60, 60))
	api.onceReply(fleetToken, nil)

	r := play(t, "fleet.js", api.fleetSettings())

	// One refusal is enough: the fleet does not ask again before Retry-After.
	requireCount(t, "tokens were asked for", len(api.requests(fleetToken)), 2)
	found := notes[seen](t, r)
	if len(found) != 1 || found[0].Status != http.StatusOK {
		t.Errorf("the fleet saw %+v", found)
	}
}

func TestFleet_AbortsWithoutAToken(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		reply  reply
		reason string
	}{
		"wrong credentials":         {reply: refuse(http.StatusUnauthorized, "INVALID_CREDENTIALS"), reason: "the fleet fleet-of-the-test gets no token at http://127.0.0.1:"},
		"no token left":             {reply: limited(60, 60), reason: "gets no token at http://127.0.0.1:"},
		"an answer without a token": {reply: text(http.StatusOK, "<html>"), reason: "there is no fleet API"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.alwaysReply(fleetToken, c.reply)

			r := play(t, "fleet.js", api.fleetSettings())

			r.requireExit(t, exitAborted)
			if !contains(r.messages("error"), c.reason) {
				t.Errorf("k6 said %q", r.messages("error"))
			}
		})
	}
}

func TestFleet_IsAskedForWhereThereIsNone(t *testing.T) {
	t.Parallel()
	r := play(t, "fleet.js", nil)

	r.requireExit(t, exitAborted)
	if !contains(r.messages("error"), "this script plays a fleet, too: set OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET") {
		t.Errorf("k6 said %q", r.messages("error"))
	}
}

func TestFleet_OfAWrongURLIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()

	r := play(t, "fleet.js", settings{
		"OPS_URL":             "https://api.example.com?key=" + recognisableSecret,
		"FLEET_CLIENT_ID":     "fleet-of-the-test",
		"FLEET_CLIENT_SECRET": "other",
	})

	r.requireExit(t, exitScriptException)
	if !contains(r.messages("error"), "OPS_URL must be like") || strings.Contains(r.rawLog, recognisableSecret) {
		t.Error("k6 does not say what OPS_URL must be, or shows the secret")
	}
}

func TestSetup_ConfirmsItsStoresWithTheFleetOfTheSettings(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.awaitConfirmation()
	env := api.settings(nil)
	maps.Copy(env, api.fleetSettings())

	r := play(t, "till.js", env)

	// The store is on the second page; the other vendor's one is left alone.
	r.requireExit(t, exitHeld)
	confirmed := api.requests(fleetConfirm)
	if len(confirmed) != 1 || confirmed[0].path != "/api/fleet/v1/stores/acc-1/loadtest-1/confirm" {
		t.Errorf("confirmed: %+v", confirmed)
	}
}
