package core

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Server is what one Redis server, in a cluster one master, reports of itself.
type Server struct {
	Addr                  string
	Name, Version         string // "redis" or "valkey"; three numbers
	MemoryUsed, MemoryMax int64  // bytes; a MemoryMax of 0 means no limit
	MemoryPolicy          string // its maxmemory-policy; empty: it does not name one
	Clients               int64  // connections
	Commands              int64  // since its start
	// AOFBroken: the last write or rewrite failed. AOFDelayed counts writes that
	// waited for the disk.
	AOF, AOFBroken bool
	AOFDelayed     int64
	Replicas       int64 // in sync
	ReplicaLag     int64 // bytes that the slowest of them lacks
}

func ParseServer(addr, info string) Server {
	values := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			values[name] = value
		}
	}

	broken := func(name string) bool { return values[name] != "" && values[name] != "ok" }
	server := "redis"
	if values["valkey_version"] != "" { // redis_version is then the release that it is compatible with
		server = "valkey"
	}

	s := Server{
		Addr: addr, Name: server, Version: values[server+"_version"],
		MemoryUsed: ParseNumber(values["used_memory"]), MemoryMax: ParseNumber(values["maxmemory"]), MemoryPolicy: values["maxmemory_policy"],
		Clients: ParseNumber(values["connected_clients"]), Commands: ParseNumber(values["total_commands_processed"]),
		AOF:        values["aof_enabled"] == "1",
		AOFBroken:  broken("aof_last_write_status") || broken("aof_last_bgrewrite_status"),
		AOFDelayed: ParseNumber(values["aof_delayed_fsync"]),
	}

	for i := range ParseNumber(values["connected_slaves"]) {
		// ip=10.0.0.2,port=6379,state=online,offset=1234,lag=1
		replica, _ := url.ParseQuery(strings.ReplaceAll(values[fmt.Sprint("slave", i)], ",", "&"))
		if replica.Get("state") == "online" {
			s.Replicas++
			s.ReplicaLag = max(s.ReplicaLag, ParseNumber(values["master_repl_offset"])-ParseNumber(replica.Get("offset")))
		}
	}

	return s
}

// Evicts reports whether the server deletes keys when its memory is full. The policies that
// take only keys with an expiry count, too: idempotency keys and sessions have one.
func (s Server) Evicts() bool { return s.MemoryPolicy != "" && s.MemoryPolicy != keepsAll }

// keepsAll is the maxmemory-policy that refuses writes instead of deleting keys.
const keepsAll = "noeviction"

// IsFull reports whether the server has reached its limit, and refuses what needs memory.
func (s Server) IsFull() bool { return s.MemoryMax > 0 && s.MemoryUsed >= s.MemoryMax }

// nearlyFull is the share of its limit from which on a server is to be relieved.
const nearlyFull = 0.9

// IsNearlyFull reports whether the server is full, or soon will be.
func (s Server) IsNearlyFull() bool {
	return s.MemoryMax > 0 && float64(s.MemoryUsed) >= nearlyFull*float64(s.MemoryMax)
}

// ErrNoLimit reports that a server has no maxmemory: it grows until the system ends it. Trying again
// does not help.
var ErrNoLimit = errors.New("redis has no limit of memory")

// ErrEvicts reports that a server may delete keys to make room, orders among them. Trying again
// does not help.
var ErrEvicts = errors.New("redis evicts")

// checkMemory returns ErrEvicts when a server, in a cluster any master, may delete keys, and in
// production ErrNoLimit when one has no maxmemory. It only warns of the first with
// Config.AllowEviction, and of the second outside production. A master of a cluster that does not
// answer must not keep the program from starting: it is left to the alerts RedisEvicts and
// RedisMemoryUnlimited.
func (l *Client) checkMemory(ctx context.Context, evictionAllowed bool) error {
	var mu sync.Mutex
	var refusals []error
	err := l.EachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		addr := master.Options().Addr
		info, err := master.Info(ctx, "memory").Result()
		if err != nil && l.IsCluster {
			l.Log.Warn("a master cannot be asked for its maxmemory and maxmemory-policy", "master", addr, "error", err)
			return nil
		}

		if err != nil {
			return Failed("asking for maxmemory and the maxmemory-policy", err)
		}

		server := ParseServer(addr, info)
		found := errors.Join(l.checkEviction(&server, evictionAllowed), l.checkLimit(&server))
		if found != nil {
			mu.Lock()
			defer mu.Unlock()
			refusals = append(refusals, found)
		}

		return nil
	})

	return errors.Join(append(refusals, err)...)
}

// checkEviction returns ErrEvicts when the server may delete keys; when that is allowed it only warns.
func (l *Client) checkEviction(server *Server, allowed bool) error {
	if !server.Evicts() {
		return nil
	}

	if allowed {
		l.Log.Warn("REDIS MAY DELETE ORDERS when its memory is full: its maxmemory-policy evicts, which redis.allow_eviction permits",
			"server", server.Addr, "maxmemory-policy", server.MemoryPolicy, "should be", keepsAll)
		return nil
	}

	return fmt.Errorf("%w: %s has the maxmemory-policy %s and would delete orders when its memory is full; "+
		"run \"redis-cli -u redis://%s config set maxmemory-policy %s\" and set it in the server's configuration, or set redis.allow_eviction: true",
		ErrEvicts, server.Addr, server.MemoryPolicy, server.Addr, keepsAll)
}

// checkLimit returns ErrNoLimit when the server has no maxmemory in production; elsewhere it only warns.
func (l *Client) checkLimit(server *Server) error {
	if server.MemoryMax > 0 {
		return nil
	}

	if l.Environment != delivery.Production {
		l.Log.Warn("Redis has no limit of memory (maxmemory): no alert warns before the system ends it", "server", server.Addr)
		return nil
	}

	return fmt.Errorf("%w: %s would grow until the system ends it, instead of refusing orders at its maxmemory and making room; "+
		"run \"redis-cli -u redis://%s config set maxmemory <bytes>\", with three quarters of what its machine or container has for it, "+
		"and set it in the server's configuration", ErrNoLimit, server.Addr, server.Addr)
}

// fixedReleases has, of each line of releases, the first one without CVE-2025-49844, by which a
// script can run code in the server. Gateways and workers may load scripts.
var fixedReleases = map[string][][3]int{
	"redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// IsFixed reports whether a release has the fix of CVE-2025-49844, going by its number. It is false
// for some that have it, because distributions fix a release without changing its number.
func (s Server) IsFixed() bool {
	var v [3]int
	if _, err := fmt.Sscanf(s.Version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return false
	}

	var latest [3]int
	for _, latest = range fixedReleases[s.Name] {
		if slices.Equal(v[:2], latest[:2]) {
			return v[2] >= latest[2]
		}
	}

	return slices.Compare(v[:], latest[:]) > 0 // a line that began after the fix
}
