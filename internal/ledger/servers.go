package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Server is what one Redis server, of a cluster one master, says of itself.
type Server struct {
	Addr                  string
	MemoryUsed, MemoryMax int64 // bytes; a MemoryMax of 0 means no limit
	Clients               int64 // connections
	Commands              int64 // since its start
	// AOF is whether it writes one, AOFBroken whether its last write or rewrite
	// failed, AOFDelayed how often a write waited for the disk.
	AOF, AOFBroken bool
	AOFDelayed     int64
	Replicas       int64
}

// Servers asks every server.
func (l Monitor) Servers(ctx context.Context) ([]Server, error) {
	var (
		mu  sync.Mutex
		all []Server
	)
	ask := func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, parseServer(one.Options().Addr, info))
		return nil
	}
	var err error
	switch client := l.rdb.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, client)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the servers: %w", failure(err))
	}
	return all, nil
}

func parseServer(addr, info string) Server {
	values := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			values[name] = value
		}
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(values[name], 10, 64) // what it does not tell is 0
		return n
	}
	failed := func(name string) bool { return values[name] != "" && values[name] != "ok" }
	return Server{
		Addr:       addr,
		MemoryUsed: number("used_memory"), MemoryMax: number("maxmemory"),
		Clients: number("connected_clients"), Commands: number("total_commands_processed"),
		AOF:        values["aof_enabled"] == "1",
		AOFBroken:  failed("aof_last_write_status") || failed("aof_last_bgrewrite_status"),
		AOFDelayed: number("aof_delayed_fsync"),
		Replicas:   number("connected_slaves"),
	}
}

// Epochs are the ledger's: the one that this process opened it with, and the one
// it has now. They differ when a backup was restored (Resume) under a process that
// was not started anew.
func (l Monitor) Epochs(ctx context.Context) (own, stored uint32, err error) {
	text, err := l.rdb.HGet(ctx, l.global.prefix+"meta", "epoch").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("reading the ledger's epoch: %w", failure(err))
	}
	epoch, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("the ledger's epoch: %w", err)
	}
	return l.epoch.Load(), uint32(epoch), nil
}
