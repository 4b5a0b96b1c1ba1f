// Package webhooks keeps the vendors' endpoints, and queues what is to be sent to them: tests, notices and replays.
// The owner of the account's partition sends it (package partitions).
package webhooks

import (
	"embed"

	"vendorapi/internal/ledger/core"
)

//go:embed *.lua
var files embed.FS

// Operations are the Lua operations of this package.
var Operations = core.Operations{Files: files, WhenFull: map[string]core.WhenFull{
	"write_endpoint":  core.RefusedWhenFull,
	"reseal_secret":   core.RefusedWhenFull,
	"queue_replays":   core.RefusedWhenFull,
	"publish_notices": core.RefusedWhenFull,
}}
