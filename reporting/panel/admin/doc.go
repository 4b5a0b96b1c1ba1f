// Package admin is where operators act: the panel's pages of webhooks,
// accounts, fleets and stores.
//
// It owns what these pages show, in which order and how much of it at once, what
// an operator can ask for on each of them, and that a form which is sent twice
// is carried out once (once.go).
//
// It reads the ledger itself and changes nothing itself: whatever an operator
// does is one request of the admin API in the operator's name (package
// adminapi). It therefore judges nothing either. What was typed is sent as it
// was typed, and a refusal comes back with the API's names of fields, which are
// also those of the inputs; only ids in paths are judged here.
//
// Secrets are in the answer to the request that issued them and nowhere else:
// no page shows one again, and none is logged.
package admin
