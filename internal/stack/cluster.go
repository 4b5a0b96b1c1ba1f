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

	"github.com/redis/go-redis/v9"
)

const clusterSlots = 16384

// clusterNodeTimeout is how long a node may be silent before the others call it
// failed; a replica takes its place 0.5 to 1 s after that.
const clusterNodeTimeout = 5 * time.Second

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
	create := []string{"--cluster", "create"}
	for i := range masters * (1 + replicas) {
		node, err := startNode(ctx, filepath.Join(dir, "node"+strconv.Itoa(i)))
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
		create = append(create, node.Addr)
	}
	create = append(create, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")
	if out, err := exec.CommandContext(ctx, "redis-cli", create...).CombinedOutput(); err != nil {
		return fmt.Errorf("redis-cli --cluster create: %w\n%s", err, out)
	}
	c.URL = c.Nodes[0].URL + "?addr=" + strings.Join(create[3:2+masters], "&addr=")
	err := c.AwaitWhole(ctx)
	for _, replica := range c.Nodes[masters:] {
		err = errors.Join(err, c.AwaitSynced(ctx, replica))
	}
	return err
}

func startNode(ctx context.Context, dir string) (*Redis, error) {
	// The bus has a port of its own: the usual port + 10000 can be beyond
	// 65535 for a port that the system gave out.
	bus, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(bus)
	return StartRedis(ctx, RedisOptions{Dir: dir, Extra: []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", "127.0.0.1",
		"--cluster-port", port, "--cluster-node-timeout", strconv.FormatInt(clusterNodeTimeout.Milliseconds(), 10),
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

// AwaitWhole returns when every node that runs knows every node, finds every
// slot served and thinks the same of who serves it.
func (c *Cluster) AwaitWhole(ctx context.Context) error {
	return c.poll(ctx, func() error {
		var agreed string
		for _, node := range c.running() {
			info, err := node.Command(ctx, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(clusterSlots), "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes))} {
				if !strings.Contains(info, want+"\r\n") {
					return fmt.Errorf("%s: not yet %s", node.Addr, want)
				}
			}
			ranges, err := view(ctx, node)
			if err != nil {
				return err
			}
			var owners strings.Builder
			for _, r := range ranges {
				fmt.Fprintln(&owners, r.Start, r.End, r.Nodes[0].Addr)
			}
			if agreed == "" {
				agreed = owners.String()
			}
			if owners.String() != agreed {
				return fmt.Errorf("%s has another view of the slots", node.Addr)
			}
		}
		return nil
	})
}

// view is who serves which slots, as one node sees it: the master is the first node
// of a range, its replicas follow.
func view(ctx context.Context, node *Redis) ([]redis.ClusterSlot, error) {
	client, err := node.Client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()    // nothing is written by it
	return client.ClusterSlots(ctx).Result() //nolint:staticcheck // ClusterShards does not say who the master is first
}

func (c *Cluster) running() []*Redis {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(node *Redis) bool { return !node.Running() })
}

// poll asks until the answer is nil or clusterTimeout is over.
func (c *Cluster) poll(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for {
		last := ask()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Master is the running node that serves a slot in its own view.
func (c *Cluster) Master(ctx context.Context, slot int) (*Redis, error) {
	masters, _ := c.serving(ctx, slot, slot) // one on its way out does not count
	if len(masters) == 0 {
		return nil, fmt.Errorf("no node serves slot %d", slot)
	}
	return masters[0], nil
}

// Masters are the running nodes that serve slots.
func (c *Cluster) Masters(ctx context.Context) ([]*Redis, error) {
	return c.serving(ctx, 0, clusterSlots-1)
}

// serving are the running nodes that serve any of these slots in their own view. The
// error names those that do not answer.
func (c *Cluster) serving(ctx context.Context, first, last int) (masters []*Redis, faults error) {
	for _, node := range c.running() {
		ranges, err := view(ctx, node)
		faults = errors.Join(faults, err)
		if slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool {
			return r.Start <= last && first <= r.End && r.Nodes[0].Addr == node.Addr
		}) {
			masters = append(masters, node)
		}
	}
	return masters, faults
}

// AwaitSynced returns when a node that was a master, or is new, follows its
// present master and has all its data.
func (c *Cluster) AwaitSynced(ctx context.Context, replica *Redis) error {
	return c.poll(ctx, func() error {
		info, err := replica.Command(ctx, "INFO", "replication")
		if err == nil && (!strings.Contains(info, "role:slave\r\n") || !strings.Contains(info, "master_link_status:up\r\n")) {
			err = errors.New(replica.Addr + " has not all data of its master yet")
		}
		return err
	})
}

// OpenSlot announces to both masters that a slot is about to move.
func (c *Cluster) OpenSlot(ctx context.Context, slot int, from, to *Redis) error {
	err := setSlot(ctx, to, slot, "IMPORTING", from)
	if err == nil {
		err = setSlot(ctx, from, slot, "MIGRATING", to)
	}
	return err
}

func setSlot(ctx context.Context, node *Redis, slot int, state string, other *Redis) error {
	id, err := other.Command(ctx, "CLUSTER", "MYID")
	if err == nil {
		_, err = node.Command(ctx, "CLUSTER", "SETSLOT", strconv.Itoa(slot), state, id)
	}
	return err
}

// MoveKeys moves at most so many keys of a slot and says how many there were.
func (c *Cluster) MoveKeys(ctx context.Context, slot int, from, to *Redis, most int) (int, error) {
	client, err := from.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }() // nothing is written by it
	keys, err := client.ClusterGetKeysInSlot(ctx, slot, most).Result()
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return len(keys), c.MoveNamed(ctx, from, to, keys...)
}

// MoveNamed moves these keys of a slot that was opened.
func (c *Cluster) MoveNamed(ctx context.Context, from, to *Redis, keys ...string) error {
	host, port, err := net.SplitHostPort(to.Addr)
	if err == nil {
		// It blocks both sides while it lasts; the time is for each write or read.
		_, err = from.Command(ctx, append([]string{"MIGRATE", host, port, "", "0", "60000", "KEYS"}, keys...)...)
	}
	return err
}

// CloseSlot gives an opened slot, now empty, to its new master, that one first,
// as the manual says, and waits until every node knows. Replicas learn it from
// the masters.
func (c *Cluster) CloseSlot(ctx context.Context, slot int, to *Redis) error {
	masters, err := c.Masters(ctx)
	for _, node := range append([]*Redis{to}, masters...) {
		if err == nil {
			err = setSlot(ctx, node, slot, "NODE", to)
		}
	}
	if err != nil {
		return err
	}
	return c.AwaitWhole(ctx)
}
