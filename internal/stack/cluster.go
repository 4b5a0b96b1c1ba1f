package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
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
		err = errors.Join(err, c.AwaitSynced(ctx, replica))
	}
	return err
}

// manage runs a command of Redis's own manager of clusters.
func manage(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"--cluster"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("redis-cli --cluster %s: %w\n%s", args[0], err, out)
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

// AwaitSynced returns when a node that was a master, or is new, follows its
// present master and has all its data.
func (c *Cluster) AwaitSynced(ctx context.Context, replica *Redis) error {
	return poll(ctx, clusterTimeout, func() error {
		info, err := replica.Command(ctx, "INFO", "replication")
		if err == nil && (!strings.Contains(info, "role:slave\r\n") || !strings.Contains(info, "master_link_status:up\r\n")) {
			err = errors.New(replica.Addr + " has not all data of its master yet")
		}
		return err
	})
}
