package core

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

//go:embed *.lua
var files embed.FS

// parts are the files that operations share, in the order in which they build on each other.
var parts = []string{"names", "clock", "window", "secrets", "order", "idempotency"}

// Operations are Lua operations of one package. Each is a file <operation>.lua, whose body becomes a
// Redis function that sees the parts.
type Operations struct {
	Files embed.FS

	// WhenFull has every operation.
	WhenFull map[string]WhenFull
}

// names returns the operations. It is an error when WhenFull lacks one that has a file.
func (o Operations) names() ([]string, error) {
	found, err := o.Files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("scripts: %w", err)
	}

	var names []string
	for _, file := range found {
		name := strings.TrimSuffix(file.Name(), ".lua")
		if slices.Contains(parts, name) {
			continue
		}

		if _, isDecided := o.WhenFull[name]; !isDecided {
			return nil, fmt.Errorf("script %s: Operations.WhenFull does not say what becomes of it when Redis is full", name)
		}
		names = append(names, name)
	}

	return names, nil
}

// WhenFull says what an operation may do when Redis has as much memory as it may use (maxmemory).
type WhenFull string

const (
	// RefusedWhenFull: the server refuses the operation before its first step. So is everything by which
	// something new comes in: orders, reports, positions, stores, accounts, sessions.
	RefusedWhenFull WhenFull = ""

	// RunsWhenFull: the operation may exceed the limit.
	RunsWhenFull WhenFull = "'allow-oom'"

	// OnlyReads: the server refuses the operation's writes, and runs it whatever memory there is.
	OnlyReads WhenFull = "'no-writes'"
)

// ownOperations are those that several packages call.
var ownOperations = Operations{
	Files:    files,
	WhenFull: map[string]WhenFull{"list_due": OnlyReads},
}

// script is an operation with the library's digest in its name: releases call their own.
type script struct {
	Name    string
	arg     any          // the name, ready for the client
	reads   bool         // it writes nothing, and is called so that it cannot
	watched CallObserver // optional
}

// library is the operations as a Redis function library, which survives restarts.
type library struct {
	Name    string // which says what is in it
	source  string
	Scripts map[string]script // by file
}

// editLua is a file's text as this ledger wants it: with the clock of a test.
func (c *Config) editLua(file, text string) string {
	if file == "clock" && c.ClockKey != "" {
		text = fmt.Sprintf("local function clock()\nlocal set = call('GET', '%s')\nif set then return tonumber(set) end\n"+
			"local t = call('TIME')\nreturn t[1] * 1000000 + t[2]\nend\n", c.ClockKey)
	}

	if c.Edit != nil {
		text = c.Edit(file, text)
	}
	return text
}

// NewLibrary assembles the library of all packages' operations. In a cluster it removes the sentinel key.
func NewLibrary(cfg *Config, packages []Operations, cluster bool) (*library, error) {
	texts := make(map[string]string)
	read := func(from embed.FS, file string) error {
		text, err := from.ReadFile(file + ".lua")
		if err != nil {
			return fmt.Errorf("script %s: %w", file, err)
		}
		texts[file] = stripComments(cfg.editLua(file, string(text)))
		return nil
	}

	for _, part := range parts {
		if err := read(files, part); err != nil {
			return nil, err
		}
	}

	whenFull := make(map[string]WhenFull)
	for _, p := range append([]Operations{ownOperations}, packages...) {
		operations, err := p.names()
		if err != nil {
			return nil, err
		}

		for _, operation := range operations {
			if err := read(p.Files, operation); err != nil {
				return nil, err
			}
			whenFull[operation] = p.WhenFull[operation]
		}
	}

	operations := slices.Sorted(maps.Keys(whenFull))
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(texts[part])
	}

	begin := "if not call then fill_in_names() end\n"
	if cluster {
		begin += "KEYS[#KEYS] = nil\n"
	}

	for _, file := range operations {
		fmt.Fprintf(&b, "redis.register_function{function_name='%s_@', flags={%s}, callback=function(KEYS, ARGV)\n%s%send}\n",
			file, whenFull[file], begin, texts[file])
	}

	sum := sha256.Sum256([]byte(b.String()))
	digest := hex.EncodeToString(sum[:8])
	l := &library{Name: LibraryPrefix + digest, Scripts: make(map[string]script, len(operations))}
	l.source = "#!lua name=" + l.Name + "\n" + strings.ReplaceAll(b.String(), "_@'", "_"+digest+"'")
	for _, file := range operations {
		s := script{Name: file + "_" + digest, arg: file + "_" + digest, reads: whenFull[file] == OnlyReads}
		if cfg.Observe != nil {
			s.watched = cfg.Observe(file)
		}
		l.Scripts[file] = s
	}

	return l, nil
}

// UnreadableReply returns the error for a script's reply that does not have the script's form.
func UnreadableReply(script string) error { return fmt.Errorf("script %s: unreadable reply", script) }

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

// LibraryPrefix begins the names of this service's function libraries; a digest of the text follows.
const LibraryPrefix = "vendorapi_"

// LibrariesKept is longer than a rolling upgrade, or two releases would load in turns.
const LibrariesKept = 7 * 24 * time.Hour

// LoadLibrary loads the library into every master, because a slot may be moving. Calls of one
// process share one loading.
func (l *Client) LoadLibrary(ctx context.Context) error {
	_, err, _ := l.loading.Do("", func() (any, error) {
		ctx := context.WithoutCancel(ctx) // others wait for it, too
		if err := l.noteLibrary(ctx); err != nil {
			l.Log.Warn("the release in use cannot be noted", "error", err)
		}
		return nil, l.EachMaster(ctx, l.loadInto)
	})
	return Failed("loading the scripts", err)
}

// loadInto loads the library into one server and deletes unused ones: 150 kB each.
func (l *Client) loadInto(ctx context.Context, server *redis.Client) error {
	err := server.FunctionLoad(ctx, l.Library.source).Err()
	if IsFull(err) { // said also where the library is there
		return l.findIn(ctx, server)
	}

	if err != nil && strings.HasSuffix(err.Error(), "already exists") {
		return nil
	}

	if err != nil {
		return err
	}

	if err := l.dropLibraries(ctx, server); err != nil {
		l.Log.Warn("libraries of earlier releases are still in Redis", "error", err)
	}

	return nil
}

// ErrScriptsMissing reports that Redis does not hold this release's scripts, and refuses to load them
// because its memory is full. It passes when there is memory.
var ErrScriptsMissing = fmt.Errorf("%w: Redis is full (maxmemory) and refuses to load the scripts of this release, of which it has none; "+
	"make room (RedisMemoryFull in docs/runbook.md), or go on with the release that ran before", delivery.ErrUnavailable)

// findIn returns ErrScriptsMissing unless the server holds the library.
func (l *Client) findIn(ctx context.Context, server *redis.Client) error {
	found, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: l.Library.Name}).Result()
	if err == nil && len(found) == 0 {
		return ErrScriptsMissing
	}
	return err
}

// CheckScripts returns ErrScriptsMissing when one of the servers is full and lacks the scripts. A
// program that asks at its start says what is wrong, instead of failing with each call. Other errors
// are left to the calls that follow.
func (l *Client) CheckScripts(ctx context.Context, servers []Server) error {
	if !slices.ContainsFunc(servers, Server.IsFull) {
		return nil // they are loaded with the first call
	}

	partitions := l.Partitions
	if !l.IsCluster {
		partitions = partitions[:1]
	}

	name := l.Library.Scripts["usage"].Name // it only reads, here a key that never exists
	pipe := l.Redis.Pipeline()
	for _, p := range partitions {
		pipe.FCallRO(ctx, name, l.keysOf([]string{p.Key(KindSentinel)}))
	}

	replies, _ := pipe.Exec(ctx) // each has its own error
	for _, reply := range replies {
		if IsUnknownFunction(reply.Err()) {
			return ErrScriptsMissing
		}
	}

	return nil
}

// LibrariesKey returns the global key under which releases note that they use a library.
func (l *Client) LibrariesKey() string { return l.Global.Prefix + "libraries" }

// noteLibrary notes that the library is in use. A Redis without memory refuses that, which is no
// reason not to start: at worst the library is deleted after a week, and loaded again by the next call.
func (l *Client) noteLibrary(ctx context.Context) error {
	err := l.Redis.ZAdd(ctx, l.LibrariesKey(), redis.Z{Score: float64(l.Now().UnixMilli()), Member: l.Library.Name}).Err()
	if IsFull(err) {
		return nil
	}
	return Failed("noting the library", err)
}

// noteOwnLibrary is noteLibrary for a start, which must not wait for one master of a cluster: whoever loads
// the library notes it again.
func (l *Client) noteOwnLibrary(ctx context.Context) error {
	err := l.noteLibrary(ctx)
	if err != nil && l.IsCluster {
		l.Log.Warn("the release in use cannot be noted", "error", err)
		return nil
	}
	return err
}

// dropLibraries deletes what was last noted too long ago; never noted counts from now.
func (l *Client) dropLibraries(ctx context.Context, server *redis.Client) error {
	there, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: LibraryPrefix + "*"}).Result()
	if err != nil {
		return err
	}

	unknown := make([]redis.Z, 0, len(there))
	for _, library := range there {
		unknown = append(unknown, redis.Z{Score: float64(l.Now().UnixMilli()), Member: library.Name})
	}

	if err := l.Redis.ZAddNX(ctx, l.LibrariesKey(), unknown...).Err(); err != nil {
		return err
	}

	before := strconv.FormatInt(l.Now().Add(-LibrariesKept).UnixMilli(), 10)
	old, err := l.Redis.ZRangeByScore(ctx, l.LibrariesKey(), &redis.ZRangeBy{Min: "-inf", Max: "(" + before}).Result()
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
		l.Log.Info("a library of an earlier release was deleted", "library", library.Name)
	}

	return nil
}
