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

// Cluster is a Redis Cluster of masters without replicas, on loopback.
type Cluster struct {
	URL   string   // redis://first?addr=second&addr=third
	Nodes []*Redis // node i serves the i-th equal share of the slots
}

// StartCluster starts masters servers (at least 3, as Redis Cluster asks)
// below dir, shares the slots out equally in order and returns when every node
// agrees that the cluster is whole. ctx bounds the start only.
func StartCluster(ctx context.Context, dir string, masters int) (*Cluster, error) {
	if masters < 3 {
		return nil, fmt.Errorf("start cluster: %d masters, want 3 or more", masters)
	}
	c := &Cluster{}
	if err := c.start(ctx, dir, masters); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, dir string, masters int) error {
	for i := range masters {
		// The bus has a port of its own: the usual port + 10000 can lie
		// beyond 65535 for a port that the system gave out.
		bus, err := FreeAddr()
		if err != nil {
			return err
		}
		node, err := StartRedis(ctx, RedisOptions{
			Dir: filepath.Join(dir, "node"+strconv.Itoa(i)),
			Extra: []string{
				"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
				"--cluster-port", portOf(bus), "--cluster-node-timeout", "5000",
			},
		})
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
		if err := c.join(ctx, i, masters, bus); err != nil {
			return err
		}
	}
	c.URL = c.Nodes[0].URL
	for i, node := range c.Nodes[1:] {
		c.URL += string("?&"[min(i, 1)]) + "addr=" + node.Addr
	}
	return c.awaitWhole(ctx)
}

// join gives node i its slots and, but for the first, introduces it to the
// first. The epochs differ from the start, so that no two nodes have to settle
// a tie.
func (c *Cluster) join(ctx context.Context, i, masters int, bus string) error {
	first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
	commands := [][]string{
		{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)},
		{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
	}
	for _, command := range commands {
		if _, err := redisCommand(ctx, "tcp", c.Nodes[i].Addr, command...); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
	}
	if i == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Nodes[i].Addr)
	if err != nil {
		return err
	}
	if _, err := redisCommand(ctx, "tcp", c.Nodes[0].Addr, "CLUSTER", "MEET", host, port, portOf(bus)); err != nil {
		return fmt.Errorf("CLUSTER MEET: %w", err)
	}
	return nil
}

func (c *Cluster) awaitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	known := "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes))
	size := "cluster_size:" + strconv.Itoa(len(c.Nodes))
	for _, node := range c.Nodes {
		err := node.process.awaitReady(ctx, func(ctx context.Context) error {
			info, err := redisCommand(ctx, "tcp", node.Addr, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", known, size} {
				if !strings.Contains(info, want+"\r\n") {
					return errors.New("not yet " + want)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Stop ends every node and waits.
func (c *Cluster) Stop() {
	for _, node := range c.Nodes {
		node.Stop()
	}
}
