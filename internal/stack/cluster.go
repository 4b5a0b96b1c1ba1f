package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const clusterSlots = 16384

// clusterNodeTimeout is how long a node may be silent before the others call it
// failed; a replica takes its place 0.5 to 1 s after that.
const clusterNodeTimeout = 5 * time.Second

// Cluster is a Redis Cluster on loopback, of masters alone or with one replica
// each.
type Cluster struct {
	URL string // redis://first?addr=second&addr=third
	// Nodes are the masters, node i with the i-th equal share of the slots, and
	// behind them their replicas in the same order. A failover changes the roles,
	// not the places.
	Nodes []*Redis

	masters int
	timeout time.Duration
}

// StartCluster starts masters servers (at least 3, as Redis Cluster asks)
// below dir, shares the slots out equally in order and returns when every node
// agrees that the cluster is whole. ctx bounds the start only.
func StartCluster(ctx context.Context, dir string, masters int) (*Cluster, error) {
	return startCluster(ctx, dir, &Cluster{masters: masters, timeout: clusterNodeTimeout}, 0)
}

// StartReplicatedCluster is StartCluster with a replica for each master, which
// has all its data when this returns. After nodeTimeout, at least a second, a
// silent master is failed over.
func StartReplicatedCluster(ctx context.Context, dir string, masters int, nodeTimeout time.Duration) (*Cluster, error) {
	return startCluster(ctx, dir, &Cluster{masters: masters, timeout: nodeTimeout}, masters)
}

func startCluster(ctx context.Context, dir string, c *Cluster, replicas int) (*Cluster, error) {
	if c.masters < 3 || c.timeout < time.Second {
		return nil, fmt.Errorf("start cluster: %d masters and a timeout of %v, want 3 and 1s or more", c.masters, c.timeout)
	}
	err := c.start(ctx, dir)
	for i := 0; err == nil && i < replicas; i++ {
		err = c.addReplica(ctx, dir, i)
	}
	if err == nil {
		err = c.AwaitWhole(ctx)
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, dir string) error {
	for i := range c.masters {
		bus, err := c.addNode(ctx, dir)
		if err != nil {
			return err
		}
		if err := c.join(ctx, i, bus); err != nil {
			return err
		}
	}
	c.URL = c.Nodes[0].URL
	for i, node := range c.Nodes[1:] {
		c.URL += string("?&"[min(i, 1)]) + "addr=" + node.Addr
	}
	return c.AwaitWhole(ctx)
}

// addNode starts one more server and returns the address of its bus.
func (c *Cluster) addNode(ctx context.Context, dir string) (bus string, err error) {
	// The bus has a port of its own: the usual port + 10000 can lie beyond
	// 65535 for a port that the system gave out.
	if bus, err = FreeAddr(); err != nil {
		return "", err
	}
	node, err := StartRedis(ctx, RedisOptions{
		Dir: filepath.Join(dir, "node"+strconv.Itoa(len(c.Nodes))),
		Extra: []string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-port", portOf(bus), "--cluster-node-timeout", strconv.FormatInt(c.timeout.Milliseconds(), 10),
			// What a dead master does not hold goes on meanwhile.
			"--cluster-require-full-coverage", "no",
			// A new replica gets its data at once, not after 5 s.
			"--repl-diskless-sync-delay", "0",
		},
	})
	if err != nil {
		return "", err
	}
	c.Nodes = append(c.Nodes, node)
	return bus, nil
}

// join gives node i its slots and, but for the first, introduces it to the
// first. The epochs differ from the start, so that no two nodes have to settle
// a tie.
func (c *Cluster) join(ctx context.Context, i int, bus string) error {
	first, last := i*clusterSlots/c.masters, (i+1)*clusterSlots/c.masters-1
	err := c.tell(ctx, c.Nodes[i], "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
	if err == nil {
		err = c.tell(ctx, c.Nodes[i], "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	if err != nil || i == 0 {
		return err
	}
	return c.meet(ctx, i, bus)
}

// meet introduces node i to the first.
func (c *Cluster) meet(ctx context.Context, i int, bus string) error {
	host, port, err := net.SplitHostPort(c.Nodes[i].Addr)
	if err != nil {
		return err
	}
	return c.tell(ctx, c.Nodes[0], "CLUSTER", "MEET", host, port, portOf(bus))
}

// addReplica starts the replica of master i and waits until it has its data.
func (c *Cluster) addReplica(ctx context.Context, dir string, i int) error {
	bus, err := c.addNode(ctx, dir)
	if err != nil {
		return err
	}
	number := len(c.Nodes) - 1
	if err := c.meet(ctx, number, bus); err != nil {
		return err
	}
	master, err := redisCommand(ctx, "tcp", c.Nodes[i].Addr, "CLUSTER", "MYID")
	if err != nil {
		return fmt.Errorf("CLUSTER MYID: %w", err)
	}
	// It has to hear of its master from the others before it can follow it.
	if err := c.poll(ctx, func(ctx context.Context) error {
		return c.tell(ctx, c.Nodes[number], "CLUSTER", "REPLICATE", master)
	}); err != nil {
		return err
	}
	return c.awaitSynced(ctx, c.Nodes[number])
}

// AwaitWhole returns when every node that runs knows every node, finds every
// slot served and thinks the same of who serves it.
func (c *Cluster) AwaitWhole(ctx context.Context) error {
	return c.poll(ctx, func(ctx context.Context) error {
		var agreed string
		for _, node := range c.running() {
			info, err := redisCommand(ctx, "tcp", node.Addr, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(clusterSlots), "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes))} {
				if !strings.Contains(info, want+"\r\n") {
					return fmt.Errorf("%s: not yet %s", node.Addr, want)
				}
			}
			view, err := c.view(ctx, node)
			if err != nil {
				return err
			}
			if agreed == "" {
				agreed = view.owners()
			}
			if view.owners() != agreed {
				return fmt.Errorf("%s has another view of the slots", node.Addr)
			}
		}
		return nil
	})
}

// running are the nodes that have not been stopped or killed.
func (c *Cluster) running() []*Redis {
	var up []*Redis
	for _, node := range c.Nodes {
		if !isClosed(node.process.exited()) {
			up = append(up, node)
		}
	}
	return up
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// tell sends a command whose answer is only whether it worked.
func (c *Cluster) tell(ctx context.Context, node *Redis, command ...string) error {
	if _, err := redisCommand(ctx, "tcp", node.Addr, command...); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command[:min(4, len(command))], " "), err)
	}
	return nil
}

// clusterPatience bounds every wait for the nodes to agree.
const clusterPatience = 2 * time.Minute

// poll asks until the answer is nil, a node is told to be gone, or
// clusterPatience is over.
func (c *Cluster) poll(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		last := ask(ctx)
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

// Stop ends every node and waits.
func (c *Cluster) Stop() {
	for _, node := range c.Nodes {
		node.Stop()
	}
}
