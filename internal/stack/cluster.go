package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterTimeout bounds every wait for the nodes to agree.
const clusterTimeout = 2 * time.Minute

// Cluster is a Redis Cluster on loopback, of masters alone or with one replica
// each.
type Cluster struct {
	URL string // redis://first?addr=second&addr=third
	// Nodes are the masters, node i with the i-th equal share of the slots, and
	// behind them their replicas. A failover changes the roles, not the places.
	Nodes []*Redis
}

// StartCluster starts masters servers (at least 3, as Redis Cluster asks)
// below dir, with so many replicas each, and shares the slots out equally in order. It
// returns when every node agrees that the cluster is whole and the replicas have all
// data. ctx bounds the start only.
func StartCluster(ctx context.Context, dir string, masters, replicas int) (*Cluster, error) {
	c := &Cluster{}
	if err := c.start(ctx, dir, masters, replicas); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, dir string, masters, replicas int) error {
	var addrs []string
	for i := range masters * (1 + replicas) {
		node, err := startNode(ctx, filepath.Join(dir, "node"+strconv.Itoa(i)))
		if err != nil {
			return err
		}
		c.Nodes, addrs = append(c.Nodes, node), append(addrs, node.Addr)
	}

	c.URL = c.Nodes[0].URL + "?addr=" + strings.Join(addrs[1:masters], "&addr=")
	if err := manage(ctx, slices.Concat([]string{"create"}, addrs, []string{"--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes"})...); err != nil {
		return err
	}

	err := c.AwaitWhole(ctx)
	for _, replica := range c.Nodes[masters:] {
		err = errors.Join(err, replica.AwaitSynced(ctx))
	}

	return errors.Join(err, c.awaitShards(ctx))
}

// awaitShards returns when each node's file has all replicas in the shards of their masters: Valkey
// calls another one corrupted, and does not start again (valkey-io/valkey#774).
func (c *Cluster) awaitShards(ctx context.Context) error {
	return poll(ctx, clusterTimeout, func() error {
		for _, node := range c.Nodes {
			text, err := os.ReadFile(filepath.Join(node.Dir, "nodes.conf"))
			if err != nil {
				return err
			}

			shards, masters := map[string]string{}, map[string]string{} // by node
			for line := range strings.Lines(string(text)) {
				if fields := strings.Fields(line); len(fields) > 4 && fields[0] != "vars" {
					_, shards[fields[0]], _ = strings.Cut(fields[1], "shard-id=") // Redis 7.0 has none
					masters[fields[0]] = fields[3]
				}
			}

			for replica, master := range masters {
				if master != "-" && shards[replica] != shards[master] {
					return fmt.Errorf("%s: %s is not in the shard of its master", node.Addr, replica)
				}
			}
		}

		return nil
	})
}

// manage runs a command of Redis's own manager of clusters.
func manage(ctx context.Context, args ...string) error {
	cli, err := RedisProgram("cli")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, cli, append([]string{"--cluster"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --cluster %s: %w\n%s", cli, args[0], err, out)
	}
	return nil
}

func startNode(ctx context.Context, dir string) (*Redis, error) {
	// The bus has a port of its own: the usual port + 10000 can be beyond
	// 65535 for a port that the system gave out.
	_, port, _ := net.SplitHostPort(FreeAddr())
	return StartRedis(ctx, RedisOptions{Dir: dir, Extra: []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", "127.0.0.1",
		"--cluster-port", port,
		// In ms. Longer silent, a node counts as failed; a replica takes its place 0.5 to 1 s after that.
		"--cluster-node-timeout", "5000",
		// What a dead master does not hold goes on meanwhile.
		"--cluster-require-full-coverage", "no",
		// A new replica gets its data at once, not after 5 s.
		"--repl-diskless-sync-delay", "0",
	}})
}

// Stop ends every node and waits.
func (c *Cluster) Stop() {
	for _, node := range c.Nodes {
		node.Stop()
	}
}

// AwaitWhole returns when every node that runs knows every node and finds every slot
// served, no slot is being moved, and all agree who serves which.
func (c *Cluster) AwaitWhole(ctx context.Context) error {
	wanted := []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes))}
	return poll(ctx, clusterTimeout, func() error {
		var asked string
		for _, node := range c.Nodes {
			if !node.Running() {
				continue
			}

			info, err := node.Command(ctx, "CLUSTER", "INFO")
			if err != nil {
				return err
			}

			for _, want := range wanted {
				if !strings.Contains(info, want+"\r\n") {
					return fmt.Errorf("%s: not yet %s", node.Addr, want)
				}
			}

			asked = node.Addr
		}

		return manage(ctx, "check", asked)
	})
}

// Follow makes a server the replica of another, or of none when master is nil, and returns when it has
// all of its data. With users, it logs in as the operator.
func (r *Redis) Follow(ctx context.Context, master *Redis) error {
	if master == nil {
		_, err := r.Command(ctx, "REPLICAOF", "NO", "ONE")
		return err
	}

	host, port, err := net.SplitHostPort(master.Addr)
	if err == nil && r.users != nil {
		_, err = r.Command(ctx, "CONFIG", "SET", "masteruser", OperatorUser, "masterauth", r.users.Passwords[OperatorUser])
	}

	if err == nil {
		_, err = r.Command(ctx, "REPLICAOF", host, port)
	}

	return errors.Join(err, r.AwaitSynced(ctx))
}

// AwaitSynced returns when a node that was a master, or is new, follows its
// present master and has all its data, on its disk, too.
func (r *Redis) AwaitSynced(ctx context.Context) error {
	return poll(ctx, clusterTimeout, func() error {
		info, err := r.Command(ctx, "INFO")
		for _, want := range []string{"role:slave", "master_link_status:up", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"} {
			if err == nil && !strings.Contains(info, want+"\r\n") {
				err = fmt.Errorf("%s has not all data of its master yet: not %s", r.Addr, want)
			}
		}
		return err
	})
}
