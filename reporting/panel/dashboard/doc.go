// Package dashboard is the pages on which operators look: the overview, the search
// for orders, the story of one order with its webhooks, refused couriers'
// updates, and dead letters.
//
// It owns what these pages say and where it comes from: what is live from Redis
// (internal/ledger), what was from ClickHouse (reporting/archive), the two put
// together without duplicates, Redis being right where both know something. A
// part that cannot be read is named on the page, and the rest of the page is
// shown all the same.
//
// It refuses to change anything: it has no route that takes a POST. Who may look
// is decided by package access, through the frame; actions on what is seen here
// stand on the pages of package operate, to which it links.
package dashboard
