package ledger

import "vendorapi/internal/ledger/core"

// The names of the core that programs use. The packages below the ledger use the core itself.
type (
	// Config says which Redis, and how it is used.
	Config = core.Config

	// TLSFiles are PEM files for a rediss:// URL.
	TLSFiles = core.TLSFiles

	// SecretKeys seal webhook secrets at rest.
	SecretKeys = core.SecretKeys

	// EarlierSecret is a secret that was replaced and works until its time.
	EarlierSecret = core.EarlierSecret

	// CallObserver gets each round trip when it has ended. It must not block.
	CallObserver = core.CallObserver

	// Server is what one server of Redis says about itself.
	Server = core.Server

	// Role is the name of a consumer group.
	Role = core.Role

	// Gaps notes whether something is missing from what several calls returned.
	Gaps = core.Gaps
)

// The consumer groups of the streams.
const (
	RoleStatus  = core.RoleStatus
	RoleWebhook = core.RoleWebhook
	RoleExport  = core.RoleExport
)

const (
	// DefaultPartitions is the number of partitions of a new ledger.
	DefaultPartitions = core.DefaultPartitions

	// HoldLifetime ends the hold of a backup that died.
	HoldLifetime = core.HoldLifetime
)

var (
	// ErrConflict says that the record was changed since it was read.
	ErrConflict = core.ErrConflict

	// ErrIncomplete reports that a list or a sum lacks what some partitions hold, because their servers
	// do not answer. What is returned beside it is valid, and may be shown with the remark that something
	// is missing (Gaps). It also wraps delivery.ErrUnavailable.
	ErrIncomplete = core.ErrIncomplete

	// ErrUnconfirmed reports that a write is in its master, while the replicas have not confirmed it.
	ErrUnconfirmed = core.ErrUnconfirmed

	// ErrTLS reports that one side does not trust the other; trying again does not help.
	ErrTLS = core.ErrTLS

	// ErrEvicts reports that a server may delete keys when its memory is full.
	ErrEvicts = core.ErrEvicts

	// ErrNoLimit reports that a server has no maxmemory.
	ErrNoLimit = core.ErrNoLimit

	// ErrScriptsMissing reports that Redis is full, and does not hold this release's scripts.
	ErrScriptsMissing = core.ErrScriptsMissing
)
