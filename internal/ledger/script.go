package ledger

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// luaParts are the files of lua/ that operations share, in the order in which
// they build on each other; every other file is one operation.
var luaParts = []string{"names", "clock", "window", "secrets", "order", "idempotency"}

// What an operation may do when Redis has as much memory as it may use (maxmemory). Each has to say
// it in luaFlags.
const (
	// refusedWhenFull: the server refuses it before its first step. So is everything by which
	// something new comes in: orders, reports, positions, stores, accounts, sessions.
	refusedWhenFull = ""
	// runsWhenFull: it may exceed the limit.
	runsWhenFull = "'allow-oom'"
	// onlyReads: the server refuses its writes, and runs it whatever memory there is.
	onlyReads = "'no-writes'"
)

// luaFlags has every operation, by file.
var luaFlags = map[string]string{
	// What removes something must not wait for memory: it would wait for ever. The few bytes that
	// it writes first are of what it then frees. Dead letters are capped (refusedKept).
	"retire_orders": runsWhenFull, "shrink_orders": runsWhenFull,

	// Only who owns a partition removes anything there, so owners keep theirs, and others may take
	// over. What advance writes is bounded by what was accepted before: nothing new comes in while
	// memory is full, an order has only so many versions, and an event so many attempts.
	"advance": runsWhenFull, "renew_tokens": runsWhenFull, "beat": runsWhenFull, "announce_release": runsWhenFull,

	// Reads that count themselves. A window's log grows with the admissions of a day, up to 115 kB of
	// admissions, 131 kB of memory, for each endpoint and account, so what they may take while memory is
	// full is bounded.
	"consume": runsWhenFull, "poll_order": runsWhenFull, "read_store": runsWhenFull, "count_token": runsWhenFull,

	"usage": onlyReads, "list_due": onlyReads,

	"create_order": refusedWhenFull, "check_body": refusedWhenFull, "cancel_order": refusedWhenFull, "report_update": refusedWhenFull, "report_locations": refusedWhenFull,
	"write_store": refusedWhenFull, "publish_notices": refusedWhenFull,
	"write_account": refusedWhenFull, "rotate_credentials": refusedWhenFull, "revoke_tokens": refusedWhenFull,
	"write_fleet": refusedWhenFull, "rotate_fleet_secret": refusedWhenFull, "set_couriers": refusedWhenFull,
	"write_endpoint": refusedWhenFull, "reseal_secret": refusedWhenFull, "queue_replays": refusedWhenFull,
	// The process keeps its figures, and adds them later.
	"count_activity": refusedWhenFull, "count_minutes": refusedWhenFull,
}

// script is an operation with the library's digest in its name: releases call their own.
type script struct {
	name    string
	arg     any          // the name, ready for the client
	reads   bool         // it writes nothing, and is called so that it cannot
	watched CallObserver // optional
}

// library is the operations as a Redis function library, which survives restarts.
type library struct {
	name    string // which says what is in it
	source  string
	scripts map[string]script // by file
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

// newLibrary assembles the library. In a cluster it removes the sentinel key.
func newLibrary(cfg *Config, cluster bool) (*library, error) {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		return nil, fmt.Errorf("scripts: %w", err)
	}

	texts := make(map[string]string, len(files))
	var operations []string
	for _, entry := range files {
		text, err := luaFiles.ReadFile("lua/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("script %s: %w", entry.Name(), err)
		}

		file := strings.TrimSuffix(entry.Name(), ".lua")
		texts[file] = stripComments(cfg.editLua(file, string(text)))
		if !slices.Contains(luaParts, file) {
			operations = append(operations, file)
		}
	}

	var b strings.Builder
	for _, part := range luaParts {
		b.WriteString(texts[part])
	}

	begin := "if not call then fill_in_names() end\n"
	if cluster {
		begin += "KEYS[#KEYS] = nil\n"
	}

	for _, file := range operations {
		if _, decided := luaFlags[file]; !decided {
			return nil, fmt.Errorf("script %s: luaFlags does not say what becomes of it when Redis is full", file)
		}
		fmt.Fprintf(&b, "redis.register_function{function_name='%s_@', flags={%s}, callback=function(KEYS, ARGV)\n%s%send}\n",
			file, luaFlags[file], begin, texts[file])
	}

	sum := sha256.Sum256([]byte(b.String()))
	digest := hex.EncodeToString(sum[:8])
	l := &library{name: libraryPrefix + digest, scripts: make(map[string]script, len(operations))}
	l.source = "#!lua name=" + l.name + "\n" + strings.ReplaceAll(b.String(), "_@'", "_"+digest+"'")
	for _, file := range operations {
		s := script{name: file + "_" + digest, arg: file + "_" + digest, reads: luaFlags[file] == onlyReads}
		if cfg.Observe != nil {
			s.watched = cfg.Observe(file)
		}
		l.scripts[file] = s
	}

	return l, nil
}

func unreadable(script string) error { return fmt.Errorf("script %s: unreadable reply", script) }

// stripComments drops whole-line comments, which the server would keep and hash.
func stripComments(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") && strings.TrimSpace(line) != "" {
			b.WriteString(line)
		}
	}
	return b.String()
}

const libraryPrefix = "vendorapi_"

// librariesKept is longer than a rolling upgrade, or two releases would load in turns.
const librariesKept = 7 * 24 * time.Hour

// loadLibrary loads the library into every master, because a slot may be moving. Calls of one
// process share one loading.
func (l *core) loadLibrary(ctx context.Context) error {
	_, err, _ := l.loading.Do("", func() (any, error) {
		ctx := context.WithoutCancel(ctx) // others wait for it, too
		if err := l.noteLibrary(ctx); err != nil {
			l.log.Warn("the release in use cannot be noted", "error", err)
		}
		return nil, l.eachMaster(ctx, l.loadInto)
	})
	return failed("loading the scripts", err)
}

// loadInto loads the library into one server and deletes unused ones: 150 kB each.
func (l *core) loadInto(ctx context.Context, server *redis.Client) error {
	err := server.FunctionLoad(ctx, l.library.source).Err()
	if isFull(err) { // said also where the library is there
		return l.findIn(ctx, server)
	}

	if err != nil && strings.HasSuffix(err.Error(), "already exists") {
		return nil
	}

	if err != nil {
		return err
	}

	if err := l.dropLibraries(ctx, server); err != nil {
		l.log.Warn("libraries of earlier releases are still in Redis", "error", err)
	}

	return nil
}

// ErrScriptsMissing reports that Redis does not hold this release's scripts, and refuses to load them
// because its memory is full. It passes when there is memory.
var ErrScriptsMissing = fmt.Errorf("%w: Redis is full (maxmemory) and refuses to load the scripts of this release, of which it has none; "+
	"make room (RedisMemoryFull in docs/runbook.md), or go on with the release that ran before", delivery.ErrUnavailable)

// findIn returns ErrScriptsMissing unless the server holds the library.
func (l *core) findIn(ctx context.Context, server *redis.Client) error {
	found, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: l.library.name}).Result()
	if err == nil && len(found) == 0 {
		return ErrScriptsMissing
	}
	return err
}

// CheckScripts returns ErrScriptsMissing when one of the servers is full and lacks the scripts. A
// program that asks at its start says what is wrong, instead of failing with each call. Other errors
// are left to the calls that follow.
func (l *Ledger) CheckScripts(ctx context.Context, servers []Server) error {
	if !slices.ContainsFunc(servers, Server.IsFull) {
		return nil // they are loaded with the first call
	}

	partitions := l.partitions
	if !l.cluster {
		partitions = partitions[:1]
	}

	name := l.library.scripts["usage"].name // it only reads, here a key that never exists
	pipe := l.rdb.Pipeline()
	for _, p := range partitions {
		pipe.FCallRO(ctx, name, l.keysOf([]string{p.key(kindSentinel)}))
	}

	replies, _ := pipe.Exec(ctx) // each has its own error
	for _, reply := range replies {
		if isUnknownFunction(reply.Err()) {
			return ErrScriptsMissing
		}
	}

	return nil
}

func (l *core) librariesKey() string { return l.global.prefix + "libraries" }

// noteLibrary notes that the library is in use. A Redis without memory refuses that, which is no
// reason not to start: at worst the library is deleted after a week, and loaded again by the next call.
func (l *core) noteLibrary(ctx context.Context) error {
	err := l.rdb.ZAdd(ctx, l.librariesKey(), redis.Z{Score: float64(l.Now().UnixMilli()), Member: l.library.name}).Err()
	if isFull(err) {
		return nil
	}
	return failed("noting the library", err)
}

// noteOwnLibrary is noteLibrary for a start, which must not wait for one master of a cluster: whoever loads
// the library notes it again.
func (l *core) noteOwnLibrary(ctx context.Context) error {
	err := l.noteLibrary(ctx)
	if err != nil && l.cluster {
		l.log.Warn("the release in use cannot be noted", "error", err)
		return nil
	}
	return err
}

// dropLibraries deletes what was last noted too long ago; never noted counts from now.
func (l *core) dropLibraries(ctx context.Context, server *redis.Client) error {
	there, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryPrefix + "*"}).Result()
	if err != nil {
		return err
	}

	unknown := make([]redis.Z, 0, len(there))
	for _, library := range there {
		unknown = append(unknown, redis.Z{Score: float64(l.Now().UnixMilli()), Member: library.Name})
	}

	if err := l.rdb.ZAddNX(ctx, l.librariesKey(), unknown...).Err(); err != nil {
		return err
	}

	before := strconv.FormatInt(l.Now().Add(-librariesKept).UnixMilli(), 10)
	old, err := l.rdb.ZRangeByScore(ctx, l.librariesKey(), &redis.ZRangeBy{Min: "-inf", Max: "(" + before}).Result()
	if err != nil {
		return err
	}

	for _, library := range there {
		if !slices.Contains(old, library.Name) {
			continue
		}
		if err := server.FunctionDelete(ctx, library.Name).Err(); err != nil && !strings.Contains(err.Error(), "not found") {
			return err
		}
		l.log.Info("a library of an earlier release was deleted", "library", library.Name)
	}

	return nil
}
