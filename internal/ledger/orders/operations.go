// Package orders creates, reads and cancels orders, takes what fleets report about them, and lets those that
// have ended long ago leave Redis.
package orders

import (
	"embed"

	"vendorapi/internal/ledger/core"
)

//go:embed *.lua
var files embed.FS

// Operations are the Lua operations of this package.
var Operations = core.Operations{Files: files, WhenFull: map[string]core.WhenFull{
	// What removes something must not wait for memory: it would wait for ever. The few bytes that
	// it writes first are of what it then frees. Dead letters are capped.
	"retire_orders": core.RunsWhenFull,
	"shrink_orders": core.RunsWhenFull,

	// It counts itself, see package limits.
	"poll_order": core.RunsWhenFull,

	"create_order":     core.RefusedWhenFull,
	"check_body":       core.RefusedWhenFull,
	"cancel_order":     core.RefusedWhenFull,
	"report_update":    core.RefusedWhenFull,
	"report_locations": core.RefusedWhenFull,
}}
