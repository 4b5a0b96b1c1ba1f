package ledger

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// luaParts are the files of lua/ that operations share, in the order in which
// they build on each other; every other file is one operation.
var luaParts = []string{"names", "clock", "window", "secrets", "order", "idempotency", "gate", "attempts", "queue"}

// script is the name under which the server knows an operation: that of its
// file and the library's digest, so code and caller always match. During a
// rolling deploy old and new processes each call their own.
type script struct {
	name    string
	arg     any          // the name, ready for the client
	watched CallObserver // nil: by nobody
}

// begin is now, if anybody wants to know.
func (s *script) begin() (began time.Time) {
	if s.watched != nil {
		began = time.Now()
	}
	return began
}

// ended tells of a call that began with begin.
func (s *script) ended(ctx context.Context, began time.Time, err error) {
	if s.watched != nil {
		s.watched(ctx, began, err)
	}
}

// observe gives every operation its observer.
func (s *scripts) observe(who func(operation string) CallObserver) {
	if who == nil {
		return
	}
	for _, operation := range s.operations() {
		operation.script.watched = who(operation.file)
	}
}

// scripts is the library of operations, as it is loaded into the server.
//
// It is a Redis function library, not a set of EVAL scripts: the shared parts
// are compiled and their functions made once instead of with every call, and a
// library survives restarts and failovers. What becomes of those of earlier
// releases stands in library.go.
type scripts struct {
	library string // its name, which says what is in it
	source  string

	consume, createOrder, judgeBody, pollOrder, cancelOrder, commitOrder,
	reportUpdate, reportLocations, indexJobs, readStore, writeStore,
	publishNotices, writeAccount, rotateCredentials, revokeTokens, countToken, countMinutes, writeFleet, queueEvents,
	leaseEvents, releaseLeases, recordAttempts, queueReplays, writeEndpoint, resealSecret, retireOrders,
	settleEntry, forgetConsumers, countActivity, usage script
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
// tests do. In a cluster every call names one key more than its operation knows
// (sentinel), which is taken off here.
func loadScripts(edit func(file, text string) string, cluster bool) (*scripts, error) {
	s := new(scripts)
	var b strings.Builder
	for _, part := range luaParts {
		text, err := readLua(part, edit)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	begin := "if not call then fill_in_names() end\n"
	if cluster {
		begin += "KEYS[#KEYS] = nil\n"
	}
	operations := s.operations()
	for _, operation := range operations {
		text, err := readLua(operation.file, edit)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "redis.register_function{function_name='%s_@', flags={%s}, callback=function(KEYS, ARGV)\n%s%send}\n",
			operation.file, operation.flags, begin, text)
	}
	sum := sha256.Sum256([]byte(b.String()))
	digest := hex.EncodeToString(sum[:8])
	s.library = libraryPrefix + digest
	s.source = "#!lua name=" + s.library + "\n" + strings.ReplaceAll(b.String(), "_@'", "_"+digest+"'")
	for _, operation := range operations {
		name := operation.file + "_" + digest
		*operation.script = script{name: name, arg: name}
	}
	return s, nil
}

// readsOnly is the flag of an operation that may not write: the server refuses
// its writes, and runs it even when it is out of memory.
const readsOnly = "'no-writes'"

// keepsRunning is the flag of an operation that runs although the server is out
// of memory: reads of vendors, whose counting writes over what is there, and what
// frees memory. Everything else is refused before its first step.
const keepsRunning = "'allow-oom'"

type operation struct {
	file   string
	script *script
	flags  string // as Lua has them in a list
}

func (s *scripts) operations() []operation {
	return []operation{
		{"consume", &s.consume, keepsRunning},
		{"create_order", &s.createOrder, ""},
		{"judge_body", &s.judgeBody, ""},
		{"poll_order", &s.pollOrder, keepsRunning},
		{"cancel_order", &s.cancelOrder, ""},
		{"commit_order", &s.commitOrder, ""},
		{"report_update", &s.reportUpdate, ""},
		{"report_locations", &s.reportLocations, ""},
		{"index_jobs", &s.indexJobs, ""},
		{"read_store", &s.readStore, keepsRunning},
		{"write_store", &s.writeStore, ""},
		{"publish_notices", &s.publishNotices, ""},
		{"write_account", &s.writeAccount, ""},
		{"rotate_credentials", &s.rotateCredentials, ""},
		{"revoke_tokens", &s.revokeTokens, ""},
		{"count_token", &s.countToken, keepsRunning},
		{"count_minutes", &s.countMinutes, ""},
		{"write_fleet", &s.writeFleet, ""},
		{"queue_events", &s.queueEvents, ""},
		{"lease_events", &s.leaseEvents, ""},
		{"release_leases", &s.releaseLeases, ""},
		{"record_attempts", &s.recordAttempts, ""},
		{"queue_replays", &s.queueReplays, ""},
		{"write_endpoint", &s.writeEndpoint, ""},
		{"reseal_secret", &s.resealSecret, ""},
		{"retire_orders", &s.retireOrders, keepsRunning},
		{"settle_entry", &s.settleEntry, ""},
		{"forget_consumers", &s.forgetConsumers, ""},
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

// libraryPrefix begins the name of every library of ours; the digest of what is
// in it follows.
const libraryPrefix = "vendorapi_"

// librariesKept is how long a library stays in a server after a process has
// last loaded it or begun to work with it. Deleting one that is still used costs
// its users one more loading, so the time only has to be longer than a rolling
// upgrade, or the two releases would take turns.
const librariesKept = 7 * 24 * time.Hour

// loadLibrary gives the library to the servers: in a cluster to every master,
// because the slot may be on its way to another one, and this process may not
// know yet. Replicas get it from their masters. Two processes that load at once
// agree: the name says what is in it. Many calls of one process that miss it
// share one loading.
func (l *core) loadLibrary(ctx context.Context) error {
	_, err, _ := l.loading.Do("", func() (any, error) {
		ctx := context.WithoutCancel(ctx) // others wait for it, too
		if err := l.noteLibrary(ctx); err != nil {
			l.log.Warn("the release in use cannot be noted", "error", err)
		}
		return nil, l.eachMaster(ctx, l.loadInto)
	})
	if err != nil {
		return fmt.Errorf("loading the scripts: %w", failure(err))
	}
	return nil
}

// loadInto gives one server the library, and takes those away that nobody has
// used for long: they would pile up, release after release, 150 kB each.
func (l *core) loadInto(ctx context.Context, server *redis.Client) error {
	err := server.FunctionLoad(ctx, l.scripts.source).Err()
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

func (l *core) librariesKey() string { return l.global.prefix + "libraries" }

// noteLibrary writes down that this release is in use.
func (l *core) noteLibrary(ctx context.Context) error {
	if err := l.rdb.ZAdd(ctx, l.librariesKey(), redis.Z{Score: float64(l.now().UnixMilli()), Member: l.scripts.library}).Err(); err != nil {
		return fmt.Errorf("noting the library: %w", failure(err))
	}
	return nil
}

// dropLibraries deletes what was last noted longer than librariesKept ago. One
// that was never noted, as those of releases that knew no notes, counts from
// now.
func (l *core) dropLibraries(ctx context.Context, server *redis.Client) error {
	there, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryPrefix + "*"}).Result()
	if err != nil {
		return err
	}
	unknown := make([]redis.Z, 0, len(there))
	for _, library := range there {
		unknown = append(unknown, redis.Z{Score: float64(l.now().UnixMilli()), Member: library.Name})
	}
	if err := l.rdb.ZAddNX(ctx, l.librariesKey(), unknown...).Err(); err != nil {
		return err
	}
	before := strconv.FormatInt(l.now().Add(-librariesKept).UnixMilli(), 10)
	old, err := l.rdb.ZRangeByScore(ctx, l.librariesKey(), &redis.ZRangeBy{Min: "-inf", Max: "(" + before}).Result()
	if err != nil {
		return err
	}
	for _, library := range there {
		for _, name := range old {
			if library.Name != name {
				continue
			}
			if err := server.FunctionDelete(ctx, name).Err(); err != nil && !strings.Contains(err.Error(), "not found") {
				return err
			}
			l.log.Info("a library of an earlier release was deleted", "library", name)
		}
	}
	return nil
}
