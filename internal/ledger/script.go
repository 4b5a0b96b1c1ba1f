package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one operation of lua/, with the shared parts it needs in front.
// Every script is called by its hash, so code and script always match: during a
// rolling deploy old and new processes each run their own.
type script struct {
	name string
	*redis.Script
}

// scripts is the list of operations. parts are named in the order in which they
// build on each other.
type scripts struct {
	consume, createOrder, judgeBody, pollOrder, cancelOrder, commitOrder,
	reportUpdate, reportLocations, indexJobs, readStore, writeStore,
	publishNotices, writeAccount, countToken, countMinutes, writeFleet, queueEvents,
	leaseEvents, recordAttempt, queueReplays, writeEndpoint, retireOrders,
	settleEntry script
}

// loadScripts assembles the operations. clock replaces lua/clock.lua where it is
// not empty, which only tests do.
func loadScripts(clock string) (*scripts, error) {
	s := new(scripts)
	for _, entry := range []struct {
		into  *script
		name  string
		parts []string
	}{
		{&s.consume, "consume", []string{"clock", "window"}},
		{&s.createOrder, "create_order", []string{"clock", "window", "order", "idempotency"}},
		{&s.judgeBody, "judge_body", []string{"clock", "window", "idempotency"}},
		{&s.pollOrder, "poll_order", []string{"clock", "window", "order"}},
		{&s.cancelOrder, "cancel_order", []string{"clock", "window", "order"}},
		{&s.commitOrder, "commit_order", []string{"order"}},
		{&s.reportUpdate, "report_update", []string{"order"}},
		{&s.reportLocations, "report_locations", []string{"order"}},
		{&s.indexJobs, "index_jobs", []string{"order"}},
		{&s.readStore, "read_store", []string{"clock", "window"}},
		{&s.writeStore, "write_store", nil},
		{&s.publishNotices, "publish_notices", nil},
		{&s.writeAccount, "write_account", nil},
		{&s.countToken, "count_token", []string{"clock", "window"}},
		{&s.countMinutes, "count_minutes", nil},
		{&s.writeFleet, "write_fleet", nil},
		{&s.queueEvents, "queue_events", []string{"order", "queue"}},
		{&s.leaseEvents, "lease_events", []string{"clock", "queue"}},
		{&s.recordAttempt, "record_attempt", []string{"order", "queue"}},
		{&s.queueReplays, "queue_replays", []string{"queue"}},
		{&s.writeEndpoint, "write_endpoint", []string{"queue"}},
		{&s.retireOrders, "retire_orders", []string{"order"}},
		{&s.settleEntry, "settle_entry", nil},
	} {
		source, err := assemble(entry.name, entry.parts, clock)
		if err != nil {
			return nil, err
		}
		*entry.into = script{name: entry.name, Script: redis.NewScript(source)}
	}
	return s, nil
}

func assemble(name string, parts []string, clock string) (string, error) {
	var b strings.Builder
	for _, part := range append(append([]string{}, parts...), name) {
		if part == "clock" && clock != "" {
			b.WriteString(clock)
			continue
		}
		text, err := luaFiles.ReadFile("lua/" + part + ".lua")
		if err != nil {
			return "", fmt.Errorf("script %s: %w", name, err)
		}
		b.WriteString(stripComments(string(text)))
	}
	return b.String(), nil
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
func (l *Ledger) run(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	reply, err := s.Run(ctx, l.rdb, keys, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", s.name, failure(err))
	}
	return reply, nil
}

// runText is run for the scripts that answer one string.
func (l *Ledger) runText(ctx context.Context, s *script, keys []string, args ...any) (string, error) {
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

// runAll runs one script many times in one round trip. A pipeline has no
// fallback when a server has forgotten the script, so those calls are repeated
// one by one; every script allows that.
func (l *Ledger) runAll(ctx context.Context, s *script, calls []call) ([]*redis.Cmd, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	pipe := l.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = s.EvalSha(ctx, pipe, c.keys, c.args...)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			cmds[i] = s.Run(ctx, l.rdb, calls[i].keys, calls[i].args...)
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
