//go:build long

package lib_test

import (
	"net/http"
	"strings"
	"testing"
)

// Everything that k6 writes may end as an artefact of a build.
func TestSecrets_AreInNothingThatK6Writes(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		misbehave func(api *vendorAPI)
		exit      int
	}{
		"a run that holds": {misbehave: func(*vendorAPI) {}, exit: exitHeld},
		"lost answers": {exit: exitLevelsNotHeld, misbehave: func(api *vendorAPI) {
			api.onceReply(postOrder, cut, cutBody(http.StatusCreated), badGateway)
		}},
		"expired tokens": {exit: exitHeld, misbehave: func(api *vendorAPI) { api.expireFirstToken() }},
		"an abort in the middle": {exit: exitAborted, misbehave: func(api *vendorAPI) {
			api.expireFirstToken()
			api.onceReply(postToken, nil, nil, refuse(http.StatusForbidden, "ACCOUNT_SUSPENDED"))
		}},
		"a renewal whose token ends at once": {exit: exitAborted, misbehave: func(api *vendorAPI) {
			api.expireFirstToken()
			api.onceReply(postToken, nil, nil)
			api.alwaysReply(postToken, text(http.StatusOK, `{"data":{"accessToken":"`+tokenNumber(3)+`","expiresIn":3}}`))
		}},
		"a broken answer with a token": {exit: exitAborted, misbehave: func(api *vendorAPI) {
			api.alwaysReply(postToken, text(http.StatusOK, `{"data":{"accessToken":"`+tokenNumber(1)+`"`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			c.misbehave(api)

			r := play(t, "till.js", api.settings(settings{
				"HOW":        "createUntilAnswered",
				"ITERATIONS": "3",
				"ACCOUNTS": `[{"clientId": "one", "clientSecret": "` + recognisableSecret + `-1"},
					{"clientId": "two", "clientSecret": "` + recognisableSecret + `-2"}]`,
			}))

			r.requireExit(t, c.exit)
			for what, written := range map[string]string{
				"the output": r.stdout, "the log": r.rawLog, "SUMMARY": r.summary, "--summary-export": r.export, "--out json": r.samples,
			} {
				hasSecret := strings.Contains(written, recognisableSecret)
				hasToken := strings.Contains(written, "token-that-nobody-may-see")
				if hasSecret || hasToken {
					t.Errorf("%s: has a client's secret %v, has a token %v", what, hasSecret, hasToken)
				}
			}

			isThere := r.summary != "" && r.export != "" && r.samples != ""
			if !isThere {
				t.Error("k6 did not write what is looked at")
			}
		})
	}
}

func TestWarnings_AreThoseOfTheFirstTenUsers(t *testing.T) {
	t.Parallel()
	api := newVendorAPI(t)
	api.alwaysReply(postOrder, refuse(http.StatusUnprocessableEntity, "VALIDATION_FAILED"))

	r := play(t, "till.js", api.settings(settings{"VUS": "13"}))

	requireCount(t, "warnings", len(r.messages("warning")), 10)
}

func TestWarnings_AreTwoOfAKindForEachUser(t *testing.T) {
	t.Parallel()

	const users, iterations, mostWarnings = "3", "10", 3 * 2 * 2
	for name, reply := range map[string]reply{
		"no answer":     cut,
		"a bad gateway": badGateway,
		"a refusal":     refuse(http.StatusUnprocessableEntity, "VALIDATION_ERROR"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.alwaysReply(postOrder, reply)

			r := play(t, "till.js", api.settings(settings{"VUS": users, "ITERATIONS": iterations}))

			warnings := r.messages("warning")
			if len(warnings) == 0 || len(warnings) > mostWarnings {
				t.Errorf("%d warnings, want at most %d: %q", len(warnings), mostWarnings, warnings)
			}
			if !contains(warnings, "this VU shows no more of these") {
				t.Error("no warning says that it is the last of its kind")
			}

			// What is not shown is counted all the same.
			if !strings.Contains(r.stdout, "an order is accepted: 30 of 30") {
				t.Error("the summary does not count every failed check")
			}
		})
	}
}
