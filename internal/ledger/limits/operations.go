// Package limits counts the requests and logins of vendors (spec, "Limits"), and what all programs do in
// each minute. A limit is counted by the script that does the request's work, or by consume.lua where there
// is no other.
package limits

import (
	"embed"

	"vendorapi/internal/ledger/core"
)

//go:embed *.lua
var files embed.FS

// Operations are the Lua operations of this package.
var Operations = core.Operations{Files: files, WhenFull: map[string]core.WhenFull{
	// Reads that count themselves. A window's log grows with the admissions of a day, up to 115 kB of
	// admissions, 131 kB of memory, for each endpoint and account, so what they may take while memory is
	// full is bounded.
	"consume":     core.RunsWhenFull,
	"count_token": core.RunsWhenFull,

	"usage": core.OnlyReads,

	// The process keeps its figures, and adds them later.
	"count_activity": core.RefusedWhenFull,
	"count_minutes":  core.RefusedWhenFull,
}}
