//go:build long

package lib_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// orderTokens returns the tokens of the requests to POST /orders, in order.
func (a *vendorAPI) orderTokens() []string {
	var tokens []string
	for _, r := range a.requests(postOrder) {
		tokens = append(tokens, strings.TrimPrefix(r.header.Get("Authorization"), "Bearer "))
	}
	return tokens
}

func TestTokens_AreSharedByAllUsersOfAnAccount(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "till.js", api.settings(settings{
		"ACCOUNTS": `[{"clientId": "one", "clientSecret": "first secret, ğüşiöç"}, {"clientId": "two", "clientSecret": "2"}]`,
		"VUS":      "100",
	}))

	// One token for each account, and each is used by the half of the users.
	r.requireExit(t, exitHeld)
	requireCount(t, "tokens were asked for", len(api.requests(postToken)), 2)
	uses := make(map[string]int)
	for _, token := range api.orderTokens() {
		uses[token]++
	}

	if len(uses) != 2 || uses[tokenNumber(1)] != 50 || uses[tokenNumber(2)] != 50 {
		t.Errorf("orders by token: %v", uses)
	}
}

// A token of one letter shows whether some of the bytes that hide it are used twice.
func TestTokens_AreSealedWithBytesThatAreUsedOnce(t *testing.T) {
	t.Parallel()

	r := play(t, "tokens.js", nil)

	found := notes[struct {
		Sealed              []string `json:"sealed"`
		IsTheToken          bool     `json:"isTheToken"`
		IsTheTokenForOthers bool     `json:"isTheTokenForOthers"`
	}](t, r)
	if len(found) != 1 || !found[0].IsTheToken || found[0].IsTheTokenForOthers {
		t.Fatalf("the token is sealed as %+v", found)
	}

	const blockLength = 64 // 32 bytes in hexadecimal
	seen := make(map[string]bool)
	for _, sealed := range found[0].Sealed {
		for block := range slices.Chunk([]byte(sealed), blockLength) {
			if seen[string(block)] {
				t.Errorf("a block is hidden like another one: %s", block)
			}
			seen[string(block)] = true
		}
	}

	if len(seen) != 6 {
		t.Errorf("%d blocks, want 6", len(seen))
	}
}

// The service's tokens are always due, because they end within the time of a renewal.
func TestTokens_GoOnWhenARenewalIsRefusedOrLost(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		failure reply
		asked   int
	}{
		// setup() and the user are each refused once, and do not ask again before Retry-After.
		"refused": {failure: limited(60, 60), asked: 3},
		// Lost answers are asked for again before each request: two stores, three orders.
		"lost":          {failure: cut, asked: 6},
		"a bad gateway": {failure: badGateway, asked: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.shortenTokens(200)
			api.alwaysReply(postToken, c.failure)
			api.onceReply(postToken, nil)

			r := play(t, "till.js", api.settings(settings{"ITERATIONS": "3", "TOLERATES": "outage"}))

			r.requireExit(t, exitHeld)
			r.requireNoException(t)
			requireCount(t, "tokens were asked for", len(api.requests(postToken)), c.asked)
			tokens := api.orderTokens()
			if len(tokens) != 3 {
				t.Errorf("%d orders, want 3", len(tokens))
			}

			for _, token := range tokens {
				if token != tokenNumber(1) {
					t.Errorf("an order was sent with %q", token)
				}
			}
		})
	}
}

func TestTokens_ThatExpiredAreRenewedAndTheRequestSentAgain(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		lifetime int
		renewals []reply
		waits    int
	}{
		"at once": {lifetime: 3600, waits: 0},
		"after the wait that a refused renewal asks for": {lifetime: 3600, renewals: []reply{limited(1, 1)}, waits: 1},
		// The first two renewals are those before the requests of setup() and of the user.
		"although a renewal was refused before": {lifetime: 200, renewals: []reply{limited(60, 60), limited(60, 60)}, waits: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.shortenTokens(c.lifetime)
			api.expireFirstToken()
			api.onceReply(postToken, append([]reply{nil}, c.renewals...)...)

			r := play(t, "till.js", api.settings(nil))

			r.requireExit(t, exitHeld)
			requireStatus(t, onlyAnswer(t, r), http.StatusCreated)

			// The same order, with the old token and with the new one.
			sent := api.requests(postOrder)
			tokens := api.orderTokens()
			if len(sent) != 2 || sent[0].body != sent[1].body || tokens[0] != tokenNumber(1) || tokens[1] != tokenNumber(2) {
				t.Errorf("orders were sent with %q", tokens)
			}

			requireCount(t, "resends", r.counter(t, "resends", settings{"reason": "TOKEN_EXPIRED"}), 1)
			for _, asked := range api.requests(postToken) {
				if asked.header.Get("Authorization") != "" {
					t.Error("a token was asked for with the one that expired")
				}
			}

			waits := r.samplesOf(t, "waited")
			if len(waits) != c.waits {
				t.Errorf("%d waits, want %d", len(waits), c.waits)
			}

			for _, w := range waits {
				if w.Value != 1000 {
					t.Errorf("a wait of %v ms, want 1000", w.Value)
				}
			}
		})
	}
}

func TestTokens_ThatExpiredDuringAnOutageAreRenewedAfterIt(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.expireFirstToken()
	api.onceReply(postToken, nil, badGateway, cut)

	r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "TOLERATES": "outage"}))

	r.requireExit(t, exitHeld)
	requireStatus(t, onlyAnswer(t, r), http.StatusCreated)
}

// setup() and the user are each refused once. The user asks again when the wait is over: the order that
// is refused makes it sleep for so long.
func TestTokens_AreAskedForAgainAfterTheWaitOfARefusal(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.shortenTokens(200)
	api.onceReply(postToken, nil, limited(60, 60), limited(1, 1))
	api.onceReply(postOrder, limited(2, 2))

	r := play(t, "till.js", api.settings(settings{"HOW": "create"}))

	r.requireExit(t, exitHeld)
	requireCount(t, "tokens were asked for", len(api.requests(postToken)), 4)
}

// A refused renewal refuses no work: the vendor goes on with its old token.
func TestAdmitted_LeavesRequestsForTokensOut(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.shortenTokens(200)
	api.alwaysReply(postToken, limited(60, 60))
	api.onceReply(postToken, nil)

	r := play(t, "till.js", api.settings(nil))

	r.requireExit(t, exitHeld)
	requireCount(t, "refusals are counted", r.counter(t, "refused", settings{"name": postToken}), 2)
	requireCount(t, "requests for tokens are counted", r.counter(t, "admitted_samples", settings{"name": postToken}), 0)
	requireCount(t, "orders are counted", r.counter(t, "admitted_samples", settings{"name": postOrder}), 1)
}

func TestReplay_OfAnOrderIsNotNotedAgain(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "till.js", api.settings(settings{"HOW": "create", "SAME": "yes", "ITERATIONS": "2"}))

	found := notes[answer](t, r)
	if len(found) != 2 || found[0].Replayed || !found[1].Replayed || found[0].OrderID != found[1].OrderID {
		t.Errorf("the answers are %+v", found)
	}

	requireCount(t, "orders are noted as accepted", r.counter(t, "orders_accepted", nil), 1)
}
