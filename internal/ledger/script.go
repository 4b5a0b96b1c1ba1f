package ledger

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// luaParts are the files of lua/ that operations share, in the order in which
// they build on each other; every other file is one operation.
var luaParts = []string{"names", "clock", "window", "order", "idempotency", "gate", "attempts", "queue"}

// script is the name under which the server knows an operation: that of its
// file and the library's digest, so code and caller always match. During a
// rolling deploy old and new processes each call their own.
type script struct {
	name string
	arg  any // the name, ready for the client
}

// scripts is the library of operations, as it is loaded into the server.
//
// It is a Redis function library, not a set of EVAL scripts: the shared parts
// are compiled and their functions made once instead of with every call, and a
// library survives restarts and failovers. One that was replaced by a later
// release stays until an operator deletes it (FUNCTION LIST, FUNCTION DELETE);
// it takes about 150 kB and does nothing.
type scripts struct {
	source string

	consume, createOrder, judgeBody, pollOrder, cancelOrder, commitOrder,
	reportUpdate, reportLocations, indexJobs, readStore, writeStore,
	publishNotices, writeAccount, countToken, countMinutes, writeFleet, queueEvents,
	leaseEvents, releaseLeases, recordAttempts, queueReplays, writeEndpoint, retireOrders,
	settleEntry, countActivity, usage script
}

// editLua is a file's text as this ledger wants it: with the clock of a test.
func (c *Config) editLua(file, text string) string {
	if file == "clock" && c.ClockKey != "" {
		text = fmt.Sprintf("local function clock()\nlocal set = call('GET', '%s')\nif set then return tonumber(set) end\n"+
			"local t = call('TIME')\nreturn t[1] * 1000000 + t[2]\nend\n", c.ClockKey)
	}
	if c.edit != nil {
		text = c.edit(file, text)
	}
	return text
}

// loadScripts assembles the library. edit may change a file's text, which only
// tests do.
func loadScripts(edit func(file, text string) string) (*scripts, error) {
	s := new(scripts)
	var b strings.Builder
	for _, part := range luaParts {
		text, err := readLua(part, edit)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	operations := s.operations()
	for _, operation := range operations {
		text, err := readLua(operation.file, edit)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "redis.register_function{function_name='%s_@', flags={%s}, callback=function(KEYS, ARGV)\n"+
			"if not call then fill_in_names() end\n%send}\n", operation.file, operation.flags, text)
	}
	sum := sha256.Sum256([]byte(b.String()))
	digest := hex.EncodeToString(sum[:8])
	s.source = "#!lua name=vendorapi_" + digest + "\n" + strings.ReplaceAll(b.String(), "_@'", "_"+digest+"'")
	for _, operation := range operations {
		name := operation.file + "_" + digest
		*operation.script = script{name: name, arg: name}
	}
	return s, nil
}

// readsOnly is the flag of an operation that may not write: the server refuses
// its writes, and runs it even when it is out of memory.
const readsOnly = "'no-writes'"

type operation struct {
	file   string
	script *script
	flags  string // as Lua has them in a list
}

func (s *scripts) operations() []operation {
	return []operation{
		{"consume", &s.consume, ""},
		{"create_order", &s.createOrder, ""},
		{"judge_body", &s.judgeBody, ""},
		{"poll_order", &s.pollOrder, ""},
		{"cancel_order", &s.cancelOrder, ""},
		{"commit_order", &s.commitOrder, ""},
		{"report_update", &s.reportUpdate, ""},
		{"report_locations", &s.reportLocations, ""},
		{"index_jobs", &s.indexJobs, ""},
		{"read_store", &s.readStore, ""},
		{"write_store", &s.writeStore, ""},
		{"publish_notices", &s.publishNotices, ""},
		{"write_account", &s.writeAccount, ""},
		{"count_token", &s.countToken, ""},
		{"count_minutes", &s.countMinutes, ""},
		{"write_fleet", &s.writeFleet, ""},
		{"queue_events", &s.queueEvents, ""},
		{"lease_events", &s.leaseEvents, ""},
		{"release_leases", &s.releaseLeases, ""},
		{"record_attempts", &s.recordAttempts, ""},
		{"queue_replays", &s.queueReplays, ""},
		{"write_endpoint", &s.writeEndpoint, ""},
		{"retire_orders", &s.retireOrders, ""},
		{"settle_entry", &s.settleEntry, ""},
		{"count_activity", &s.countActivity, ""},
		{"usage", &s.usage, readsOnly},
	}
}

func readLua(file string, edit func(file, text string) string) (string, error) {
	text, err := luaFiles.ReadFile("lua/" + file + ".lua")
	if err != nil {
		return "", fmt.Errorf("script %s: %w", file, err)
	}
	return stripComments(edit(file, string(text))), nil
}

// stripComments drops whole-line comments, so that the server neither keeps nor
// hashes the manuals.
func stripComments(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") && strings.TrimSpace(line) != "" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// run calls a script and returns its reply, with Redis's failures told apart
// from ours.
func (l *Ledger) run(ctx context.Context, s script, keys []string, args ...any) (any, error) {
	cmd := l.calls.FCall(ctx, s.name, keys, args...)
	if isUnknownFunction(cmd.Err()) {
		if err := l.loadLibrary(ctx, keys[0]); err != nil {
			return nil, err
		}
		cmd = l.calls.FCall(ctx, s.name, keys, args...)
	}
	reply, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", s.name, failure(err))
	}
	return reply, nil
}

func isUnknownFunction(err error) bool {
	return err != nil && err.Error() == "ERR Function not found"
}

// loadLibrary gives the library to the server that holds the key. Two that do
// so at once agree: the name says what is in it.
func (l *Ledger) loadLibrary(ctx context.Context, key string) error {
	var server redis.Cmdable = l.rdb
	if many, ok := l.rdb.(*redis.ClusterClient); ok {
		master, err := many.MasterForKey(ctx, key)
		if err != nil {
			return fmt.Errorf("loading the scripts: %w", failure(err))
		}
		server = master
	}
	err := server.FunctionLoad(ctx, l.scripts.source).Err()
	if err != nil && !strings.HasSuffix(err.Error(), "already exists") {
		return fmt.Errorf("loading the scripts: %w", failure(err))
	}
	return nil
}

// runText is run for the scripts that answer one string.
func (l *Ledger) runText(ctx context.Context, s script, keys []string, args ...any) (string, error) {
	reply, err := l.run(ctx, s, keys, args...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("script %s answered %T instead of a string", s.name, reply)
	}
	return text, nil
}

// call is one script of a pipeline.
type call struct {
	keys []string
	args []any
}

// runAll runs one script many times in one round trip. Calls that met a server
// without the library are repeated one by one; every script allows that.
func (l *Ledger) runAll(ctx context.Context, s script, calls []call) ([]*redis.Cmd, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	pipe := l.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = pipe.FCall(ctx, s.name, c.keys, c.args...)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	for i, cmd := range cmds {
		if isUnknownFunction(cmd.Err()) {
			if err := l.loadLibrary(ctx, calls[i].keys[0]); err != nil {
				return nil, err
			}
			cmds[i] = l.rdb.FCall(ctx, s.name, calls[i].keys, calls[i].args...)
		}
		if err := cmds[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("script %s: %w", s.name, failure(err))
		}
	}
	return cmds, nil
}

// unavailablePrefixes are the replies of a Redis that cannot serve now but may
// later: loading, out of memory, read-only, in a failover, misconfigured.
var unavailablePrefixes = []string{
	"LOADING", "OOM", "MISCONF", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
	"NOREPLICAS", "BUSY", "UNBLOCKED", "MOVED", "ASK", "NOAUTH", "WRONGPASS", "NOPERM",
}

// failure wraps delivery.ErrUnavailable around everything but a server's reply
// that points to a defect of ours.
func failure(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return fmt.Errorf("%w: %w", delivery.ErrUnavailable, err)
	}
	for _, prefix := range unavailablePrefixes {
		if redis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("%w: %w", delivery.ErrUnavailable, err)
		}
	}
	return err
}
