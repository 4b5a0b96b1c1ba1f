package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterView is what one node thinks of all.
type clusterView struct {
	nodes []clusterMember
}

// clusterMember is one line of CLUSTER NODES.
type clusterMember struct {
	id, addr, slots string
	master          bool
	of              string // a replica's master, by id
}

// owners names who serves which slots.
func (v *clusterView) owners() string {
	slots := make(map[string]string)
	for _, m := range v.nodes {
		if m.slots != "" {
			slots[m.addr] = m.slots
		}
	}
	return fmt.Sprint(slots) // sorted by address
}

func (c *Cluster) view(ctx context.Context, node *Redis) (*clusterView, error) {
	text, err := redisCommand(ctx, "tcp", node.Addr, "CLUSTER", "NODES")
	if err != nil {
		return nil, fmt.Errorf("CLUSTER NODES: %w", err)
	}
	v := new(clusterView)
	for line := range strings.Lines(text) {
		// <id> <ip:port@cport[,hostname]> <flags> <master> <ping> <pong> <epoch> <link> <slot> ...
		words := strings.Fields(line)
		if len(words) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: line %q", line)
		}
		addr, _, _ := strings.Cut(words[1], "@")
		m := clusterMember{id: words[0], addr: addr, of: words[3],
			master: slices.Contains(strings.Split(words[2], ","), "master")}
		for _, slot := range words[8:] {
			if !strings.HasPrefix(slot, "[") { // of a move that is under way
				m.slots += slot + " "
			}
		}
		v.nodes = append(v.nodes, m)
	}
	return v, nil
}

// serves tells whether the member has the slot.
func (m *clusterMember) serves(slot int) bool {
	for _, part := range strings.Fields(m.slots) {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err == nil && err2 == nil && first <= slot && slot <= last {
			return true
		}
	}
	return false
}

// Master is the running node that serves a slot, as itself and any other node
// see it.
func (c *Cluster) Master(ctx context.Context, slot int) (*Redis, error) {
	for _, node := range c.running() {
		v, err := c.view(ctx, node)
		if err != nil {
			continue // it may be on its way out; the next one is asked
		}
		for i := range v.nodes {
			if m := &v.nodes[i]; m.addr == node.Addr && m.master && m.serves(slot) {
				return node, nil
			}
		}
	}
	return nil, fmt.Errorf("no node serves slot %d", slot)
}

// ReplicaOf waits for a running node that follows the master and has all its
// data, and returns it.
func (c *Cluster) ReplicaOf(ctx context.Context, master *Redis) (replica *Redis, err error) {
	err = c.poll(ctx, func(ctx context.Context) error {
		v, err := c.view(ctx, master)
		if err != nil {
			return err
		}
		self := slices.IndexFunc(v.nodes, func(m clusterMember) bool { return m.addr == master.Addr })
		for _, node := range c.running() {
			if self >= 0 && slices.ContainsFunc(v.nodes, func(m clusterMember) bool { return m.of == v.nodes[self].id && m.addr == node.Addr }) {
				replica = node
				return nil
			}
		}
		return fmt.Errorf("%s has no replica", master.Addr)
	})
	if err != nil {
		return nil, err
	}
	return replica, c.awaitSynced(ctx, replica)
}

// Masters are the running nodes that serve slots.
func (c *Cluster) Masters(ctx context.Context) ([]*Redis, error) {
	var masters []*Redis
	for _, node := range c.running() {
		v, err := c.view(ctx, node)
		if err != nil {
			return nil, err
		}
		for _, m := range v.nodes {
			if m.addr == node.Addr && m.master && m.slots != "" {
				masters = append(masters, node)
			}
		}
	}
	return masters, nil
}

// Failover has a replica take over from its master in an orderly way: the
// master stops taking writes until the replica has all of them, so nothing is
// lost. It returns when every node knows.
func (c *Cluster) Failover(ctx context.Context, replica *Redis) error {
	if err := c.awaitSynced(ctx, replica); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	if err := c.tell(ctx, replica, "CLUSTER", "FAILOVER"); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return c.AwaitPromotion(ctx, replica)
}

// AwaitPromotion returns when a replica has become a master and every running
// node knows it and finds the cluster whole.
func (c *Cluster) AwaitPromotion(ctx context.Context, replica *Redis) error {
	err := c.poll(ctx, func(ctx context.Context) error {
		role, err := redisCommand(ctx, "tcp", replica.Addr, "ROLE")
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
	return c.poll(ctx, func(ctx context.Context) error {
		info, err := redisCommand(ctx, "tcp", replica.Addr, "INFO", "replication")
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

// keysAtOnce is how many keys one MIGRATE takes along.
const keysAtOnce = 100

// MoveSlot moves a slot and all its keys to another master, as `redis-cli
// --cluster reshard` does, while clients go on.
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
		n, err := c.MoveKeys(ctx, slot, from, to, keysAtOnce)
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
	for _, step := range []struct {
		at    *Redis
		what  string
		other *Redis
	}{{to, "IMPORTING", from}, {from, "MIGRATING", to}} {
		other, err := redisCommand(ctx, "tcp", step.other.Addr, "CLUSTER", "MYID")
		if err != nil {
			return fmt.Errorf("CLUSTER MYID: %w", err)
		}
		if err := c.tell(ctx, step.at, "CLUSTER", "SETSLOT", strconv.Itoa(slot), step.what, other); err != nil {
			return err
		}
	}
	return nil
}

// MoveKeys moves at most so many keys of a slot and says how many there were.
func (c *Cluster) MoveKeys(ctx context.Context, slot int, from, to *Redis, most int) (int, error) {
	keys, err := redisItems(ctx, from.Addr, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(most))
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
	command := append([]string{"MIGRATE", host, port, "", "0", "60000", "KEYS"}, keys...)
	return c.tell(ctx, from, command...)
}

// CloseSlot gives an opened slot, now empty, to its new master, that one first,
// as the manual says, and waits until every node knows.
func (c *Cluster) CloseSlot(ctx context.Context, slot int, to *Redis) error {
	id, err := redisCommand(ctx, "tcp", to.Addr, "CLUSTER", "MYID")
	if err != nil {
		return fmt.Errorf("CLUSTER MYID: %w", err)
	}
	if err := c.tell(ctx, to, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", id); err != nil {
		return err
	}
	for _, node := range c.running() {
		role, err := redisCommand(ctx, "tcp", node.Addr, "ROLE")
		if err != nil || !strings.HasPrefix(role, "master\n") || node == to {
			continue // replicas hear of it from the others
		}
		if err := c.tell(ctx, node, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", id); err != nil {
			return err
		}
	}
	return c.AwaitWhole(ctx)
}

// redisItems is redisCommand for an array of strings that may hold any byte.
func redisItems(ctx context.Context, addr string, command ...string) ([]string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	request := fmt.Sprintf("*%d\r\n", len(command))
	for _, word := range command {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(line, "*"), "\r\n"))
	if err != nil {
		return nil, fmt.Errorf("%s: reply %q", command[0], line)
	}
	items := make([]string, n)
	for i := range items {
		if items[i], err = readReply(in); err != nil {
			return nil, err
		}
	}
	return items, nil
}
