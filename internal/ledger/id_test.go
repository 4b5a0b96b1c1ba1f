package ledger

import (
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/testenv/testserver"
)

// The id is drawn once. Every environment of a Redis has its own, and so has another Redis.
func TestLedger_HasOneID(t *testing.T) {
	redis := testserver.NewRedis(t)
	here := func(c *core.Config) { c.URL = redis.URL }
	first := openTest(t, here)
	check(t, len(first.ID()) >= 20, "the id is %q", first.ID())
	equal(t, openTest(t, here).ID(), first.ID(), "the id of the second process")
	equal(t, first.core.Redis.HGet(t.Context(), first.core.MetaKey(), "id").Val(), first.ID(), "what Redis has")

	production := openTest(t, here, func(c *core.Config) { c.Environment = delivery.Production })
	check(t, production.ID() != "" && production.ID() != first.ID(), "production has the id %q", production.ID())
	check(t, openTest(t).ID() != first.ID(), "another Redis has the same id")
}
