// Package accounts keeps the vendors' accounts, their stores, and the courier fleets.
package accounts

import (
	"embed"

	"vendorapi/internal/ledger/core"
)

//go:embed *.lua
var files embed.FS

// Operations are the Lua operations of this package.
var Operations = core.Operations{Files: files, WhenFull: map[string]core.WhenFull{
	// It counts itself, see package limits.
	"read_store": core.RunsWhenFull,

	"write_account":       core.RefusedWhenFull,
	"rotate_credentials":  core.RefusedWhenFull,
	"revoke_tokens":       core.RefusedWhenFull,
	"write_fleet":         core.RefusedWhenFull,
	"rotate_fleet_secret": core.RefusedWhenFull,
	"set_couriers":        core.RefusedWhenFull,
	"write_store":         core.RefusedWhenFull,
}}
