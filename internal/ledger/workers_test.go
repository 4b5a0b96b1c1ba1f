package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// reply is an error that a server answers.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A worker leaves a partition to others when Redis refuses it, not when Redis serves nobody.
func TestRefused_IsWhatAnotherWorkerMayBeAllowed(t *testing.T) {
	for _, refused := range []error{
		reply("NOPERM this user has no permissions to run the 'fcall' command"),
		reply("WRONGPASS invalid username-password pair or user is disabled."),
		reply("ERR The user executing the script can't run this command or subcommand script: advance"),
		reply("WRONGTYPE Operation against a key holding the wrong kind of value"),
		core.Failed("reading", reply("NOPERM")),
	} {
		check(t, partitions.Refused(refused), "%v", refused)
	}

	for _, passes := range []error{
		nil, redis.Nil, partitions.ErrNotOwner, core.ErrConflict, errors.New("EOF"), delivery.ErrUnavailable, core.ErrSilent,
		reply("OOM command not allowed when used memory > 'maxmemory'."), reply("LOADING Redis is loading the dataset in memory"),
		reply("CLUSTERDOWN Hash slot not served"), reply("READONLY You can't write against a read only replica."),
		reply("MISCONF Errors writing to the AOF file"), reply("NOREPLICAS Not enough good replicas to write."),
		fmt.Errorf("%w: %w", core.ErrUnconfirmed, reply("ERR WAITAOF cannot be used with replica instances")),
	} {
		check(t, !partitions.Refused(passes), "%v", passes)
	}
}

func TestForbidden_NamesEachCommandOnce(t *testing.T) {
	equal(t, partitions.Forbidden([][]string{nil, {}}), nil, "all rights")
	err := partitions.Forbidden([][]string{{"XADD", "APPEND"}, {"XADD"}})
	check(t, errors.Is(err, partitions.ErrForbidden) && err.Error() == partitions.ErrForbidden.Error()+": append, xadd", "%v", err)
}

// The tags of the copies are spread over the slots, whatever the number of partitions.
func TestMetaCopies_AreSpreadOverTheSlots(t *testing.T) {
	for _, env := range []byte{'p', 's'} {
		for i, key := range core.MetaCopyKeys(env) {
			tag := key[1 : len(key)-2]
			share := int(core.HashSlot(tag)) / (core.ClusterSlots / core.MetaCopies)
			equal(t, share, i, key)
		}
	}
}
