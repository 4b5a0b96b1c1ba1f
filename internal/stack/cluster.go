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
// below dir, shares the slots out equally in order and returns when every node
// agrees that the cluster is whole. ctx bounds the start only.
func StartCluster(ctx context.Context, dir string, masters int) (*Cluster, error) {
	return startCluster(ctx, dir, masters, 0, clusterNodeTimeout)
}

// StartReplicatedCluster is StartCluster with a replica for each master, which
// has all its data when this returns. After nodeTimeout, at least a second, a
// silent master is failed over.
func StartReplicatedCluster(ctx context.Context, dir string, masters int, nodeTimeout time.Duration) (*Cluster, error) {
	return startCluster(ctx, dir, masters, 1, nodeTimeout)
}

func startCluster(ctx context.Context, dir string, masters, replicas int, nodeTimeout time.Duration) (*Cluster, error) {
	c := &Cluster{}
	err := c.start(ctx, dir, masters, replicas, nodeTimeout)
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, dir string, masters, replicas int, nodeTimeout time.Duration) error {
	create := []string{"--cluster", "create"}
	for i := range masters * (1 + replicas) {
		node, err := startNode(ctx, filepath.Join(dir, "node"+strconv.Itoa(i)), nodeTimeout)
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
	c.URL = c.Nodes[0].URL
	for i, node := range c.Nodes[1:masters] {
		c.URL += string("?&"[min(i, 1)]) + "addr=" + node.Addr
	}
	if err := c.AwaitWhole(ctx); err != nil {
		return err
	}
	for _, replica := range c.Nodes[masters:] {
		if err := c.awaitSynced(ctx, replica); err != nil {
			return err
		}
	}
	return nil
}

func startNode(ctx context.Context, dir string, nodeTimeout time.Duration) (*Redis, error) {
	// The bus has a port of its own: the usual port + 10000 can lie beyond
	// 65535 for a port that the system gave out.
	bus, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	return StartRedis(ctx, RedisOptions{
		Dir: dir,
		Extra: []string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", "127.0.0.1",
			"--cluster-port", portOf(bus), "--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
			// What a dead master does not hold goes on meanwhile.
			"--cluster-require-full-coverage", "no",
			// A new replica gets its data at once, not after 5 s.
			"--repl-diskless-sync-delay", "0",
		},
	})
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

// running are the nodes that have not been stopped or killed.
func (c *Cluster) running() []*Redis {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(node *Redis) bool { return ended(node.process.exited()) })
}

// poll asks until the answer is nil or clusterTimeout is over.
func (c *Cluster) poll(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		last := ask()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// Master is the running node that serves a slot in its own view.
func (c *Cluster) Master(ctx context.Context, slot int) (*Redis, error) {
	for _, node := range c.running() {
		ranges, err := view(ctx, node)
		if err != nil {
			continue // it may be on its way out; the next one is asked
		}
		for _, r := range ranges {
			if r.Start <= slot && slot <= r.End && r.Nodes[0].Addr == node.Addr {
				return node, nil
			}
		}
	}
	return nil, fmt.Errorf("no node serves slot %d", slot)
}

// Masters are the running nodes that serve slots.
func (c *Cluster) Masters(ctx context.Context) ([]*Redis, error) {
	var masters []*Redis
	for _, node := range c.running() {
		ranges, err := view(ctx, node)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool { return r.Nodes[0].Addr == node.Addr }) {
			masters = append(masters, node)
		}
	}
	return masters, nil
}

// ReplicaOf waits for a running node that follows the master and has all its
// data, and returns it.
func (c *Cluster) ReplicaOf(ctx context.Context, master *Redis) (replica *Redis, err error) {
	err = c.poll(ctx, func() error {
		ranges, err := view(ctx, master)
		if err != nil {
			return err
		}
		for _, r := range ranges {
			if r.Nodes[0].Addr != master.Addr {
				continue
			}
			for _, node := range c.running() {
				if slices.ContainsFunc(r.Nodes[1:], func(n redis.ClusterNode) bool { return n.Addr == node.Addr }) {
					replica = node
					return nil
				}
			}
		}
		return fmt.Errorf("%s has no replica", master.Addr)
	})
	if err != nil {
		return nil, err
	}
	return replica, c.awaitSynced(ctx, replica)
}

// Failover has a replica take over from its master in an orderly way: the
// master stops taking writes until the replica has all of them, so nothing is
// lost. It returns when every node knows.
func (c *Cluster) Failover(ctx context.Context, replica *Redis) error {
	err := c.awaitSynced(ctx, replica)
	if err == nil {
		_, err = replica.Command(ctx, "CLUSTER", "FAILOVER")
	}
	if err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return c.AwaitPromotion(ctx, replica)
}

// AwaitPromotion returns when a replica has become a master and every running
// node knows it and finds the cluster whole.
func (c *Cluster) AwaitPromotion(ctx context.Context, replica *Redis) error {
	err := c.poll(ctx, func() error {
		role, err := replica.Command(ctx, "ROLE")
		if err == nil && !strings.HasPrefix(role, "master\n") {
			err = errors.New(replica.Addr + " is still a replica")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("promotion: %w", err)
	}
	return c.AwaitWhole(ctx)
}

// awaitSynced returns when a node that was a master, or is new, follows its
// present master and has all its data.
func (c *Cluster) awaitSynced(ctx context.Context, replica *Redis) error {
	return c.poll(ctx, func() error {
		info, err := replica.Command(ctx, "INFO", "replication")
		if err == nil && (!strings.Contains(info, "role:slave\r\n") || !strings.Contains(info, "master_link_status:up\r\n")) {
			err = errors.New(replica.Addr + " has not all data of its master yet")
		}
		return err
	})
}

// SlotMove is what moving one slot took.
type SlotMove struct {
	Keys int
	Took time.Duration // from the announcement until all masters know the new owner
}

// MoveSlot moves a slot and all its keys to another master, as `redis-cli
// --cluster reshard` does, while clients go on. That cannot be told which slot.
func (c *Cluster) MoveSlot(ctx context.Context, slot int, to *Redis) (SlotMove, error) {
	began := time.Now()
	from, err := c.Master(ctx, slot)
	if err != nil || from == to {
		return SlotMove{}, err
	}
	if err := c.OpenSlot(ctx, slot, from, to); err != nil {
		return SlotMove{}, fmt.Errorf("move slot %d: %w", slot, err)
	}
	move := SlotMove{}
	for {
		n, err := c.MoveKeys(ctx, slot, from, to, 100)
		if err != nil {
			return move, fmt.Errorf("move slot %d: %w", slot, err)
		}
		if n == 0 {
			break
		}
		move.Keys += n
	}
	err = c.CloseSlot(ctx, slot, to)
	move.Took = time.Since(began)
	return move, err
}

// OpenSlot announces to both masters that a slot is about to move.
func (c *Cluster) OpenSlot(ctx context.Context, slot int, from, to *Redis) error {
	source, err := from.Command(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err := to.Command(ctx, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", source); err != nil {
		return err
	}
	target, err := to.Command(ctx, "CLUSTER", "MYID")
	if err == nil {
		_, err = from.Command(ctx, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", target)
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
	if err != nil {
		return err
	}
	// It blocks both sides while it lasts; the time is for each write or read.
	_, err = from.Command(ctx, append([]string{"MIGRATE", host, port, "", "0", "60000", "KEYS"}, keys...)...)
	return err
}

// CloseSlot gives an opened slot, now empty, to its new master, that one first,
// as the manual says, and waits until every node knows. Replicas hear of it from
// the masters.
func (c *Cluster) CloseSlot(ctx context.Context, slot int, to *Redis) error {
	id, err := to.Command(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	masters, err := c.Masters(ctx)
	if err != nil {
		return err
	}
	for _, node := range append([]*Redis{to}, slices.DeleteFunc(masters, func(m *Redis) bool { return m == to })...) {
		if _, err := node.Command(ctx, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", id); err != nil {
			return err
		}
	}
	return c.AwaitWhole(ctx)
}
