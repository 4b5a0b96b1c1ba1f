// Package partitions is what the owner of a partition does: it takes the partition over, reads its streams, and
// commits steps, which change orders and schedule webhooks. Consumer groups read the same streams.
package partitions

import (
	"embed"

	"vendorapi/internal/ledger/core"
)

//go:embed *.lua
var files embed.FS

// Operations are the Lua operations of this package.
var Operations = core.Operations{Files: files, WhenFull: map[string]core.WhenFull{
	// Only who owns a partition removes anything there, so owners keep theirs, and others may take
	// over. What advance writes is bounded by what was accepted before: nothing new comes in while
	// memory is full, an order has only so many versions, and an event so many attempts.
	"advance":          core.RunsWhenFull,
	"renew_tokens":     core.RunsWhenFull,
	"beat":             core.RunsWhenFull,
	"announce_release": core.RunsWhenFull,
}}
