package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// clusterMasters is how many masters a run with -cluster has.
const clusterMasters = 3

// startOnCluster starts everything on a cluster. Programs call its servers without a proxy, since a
// cluster tells them the servers' own addresses.
func (s *system) startOnCluster(ctx context.Context, dir string, from *options, out io.Writer) (err error) {
	replicas := 0
	o := s.stackOptions(dir, from, out)
	if from.replica {
		replicas = 1
		o.Env = append(o.Env, "REDIS_DURABILITY=replica")
	}

	s.cluster, err = stack.StartCluster(ctx, filepath.Join(dir, "ledger"), clusterMasters, replicas)
	if err != nil {
		return err
	}

	s.ends = append(s.ends, s.cluster.Stop)
	o.RedisURL = s.cluster.URL
	if err := s.addProxies(map[string]string{"gateway": o.GatewayAddr, "clickhouse": o.ClickHouseAddr}); err != nil {
		return err
	}
	if err := s.startPrograms(ctx, o); err != nil {
		return err
	}
	if err := s.addSpares(ctx); err != nil {
		return err
	}

	return s.openObservers(ctx)
}

// observer is an account with receiver whose keys one master of a cluster has. It belongs to no round.
type observer struct {
	*stack.Vendor
	api    *client.Client
	inbox  *validate.Inbox
	master string // address
	orders int
}

// openObservers opens accounts until every master has one.
func (s *system) openObservers(ctx context.Context) error {
	const enough = 64 // accounts; a master of three is missed by all of them once in 10^11 runs
	found := make(map[string]bool)
	for n := 0; len(found) < clusterMasters; n++ {
		if n == enough {
			return fmt.Errorf("%d accounts belong to %d masters, want %d", enough, len(found), clusterMasters)
		}

		o, err := s.openObserver(ctx, n)
		if err != nil {
			return err
		}

		if !found[o.master] {
			found[o.master] = true
			s.observers = append(s.observers, o)
		}
	}

	return nil
}

func (s *system) openObserver(ctx context.Context, number int) (o *observer, err error) {
	o = &observer{inbox: validate.NewInbox()}
	s.ends = append(s.ends, o.inbox.Close)
	o.Vendor, err = s.apis.OpenVendor(ctx, stack.VendorOptions{Name: fmt.Sprintf("observer %d", number), Limits: stack.Unlimited,
		WebhookURL: "http://" + o.inbox.Listener.Addr().String() + "/"})
	if err != nil {
		return nil, err
	}

	o.inbox.Serve(o.AccountID, o.WebhookSecret)
	o.api = &client.Client{Base: "http://" + s.proxies["gateway"].Addr + "/api/vendor/v1", Bearer: o.Bearer, HTTP: &http.Client{Timeout: requestTimeout}}

	account, err := delivery.ParseAccountID(o.AccountID)
	if err != nil {
		return nil, err
	}

	o.master, err = s.ledger.MasterOf(ctx, account)

	return o, err
}

// isServed creates an order and returns nil once its courier has delivered it, the receiver has been told
// so, and ClickHouse has it. The courier is shown its jobs by the list of its fleet.
func (o *observer) isServed(ctx context.Context, s *system, timeout time.Duration) error {
	o.orders++
	external := "O-" + strconv.Itoa(o.orders)
	body := o.Order(func(b map[string]any) { b["externalOrderId"] = external })
	a, err := o.api.Do(ctx, http.MethodPost, "/orders", body)
	if err != nil {
		return fmt.Errorf("creation: %w", err)
	}

	var created struct{ OrderID string }
	if err := a.Into(&created); err != nil {
		return fmt.Errorf("creation: %w", err)
	}

	err = harness.Await(ctx, "the webhook of order "+created.OrderID+" that it is delivered", timeout, pollInterval, func() (bool, error) {
		for _, arrival := range o.inbox.Arrivals() {
			if arrival.Order == created.OrderID && arrival.Status == delivery.Delivered.String() {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}

	return harness.Await(ctx, "order "+created.OrderID+" in ClickHouse", timeout, pollInterval, func() (bool, error) {
		found, err := s.queryClickHouse(ctx, "SELECT count() FROM delivery.orders WHERE status = 'Delivered' AND order_id = '"+created.OrderID+"'")
		return found != "0", err
	})
}

// queryClickHouse asks past the proxy, for one value.
func (s *system) queryClickHouse(ctx context.Context, sql string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Demo.ClickHouseURL, strings.NewReader(sql))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // it is read

	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}

	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ClickHouse: %d: %s", answer.StatusCode, delivery.Excerpt(string(text), delivery.MaxForeignError))
	}

	return strings.TrimSpace(string(text)), nil
}

// serveTimeout is within what an order of an account with a living master must be delivered, told and
// exported. handOverTimeout is that while a worker that ends hands its partitions over, which may take 5 s.
const (
	serveTimeout    = 5 * time.Second
	handOverTimeout = 5*time.Second + serveTimeout
)

// masterAway kills a master and shows that whoever does not need it does not miss it.
func (in *injection) masterAway(ctx context.Context) error {
	dead := draw(in.random, in.cluster.Nodes)
	fleets, err := in.ledger.MasterOfFleets(ctx)
	if err != nil {
		return err
	}

	in.kill(dead.Program)
	in.times.Add(1)
	in.log("%s is dead", dead.Addr)

	err = in.othersAreServed(ctx, dead.Addr, dead.Addr != fleets)
	if err != nil {
		err = fmt.Errorf("while %s is dead: %w", dead.Addr, err)
	}

	return errors.Join(err, in.restart(ctx, dead.Program, startTimeout))
}

// othersAreServed shows it for the accounts of the masters that are left, also after programs have been
// restarted. A gateway can only start where it can read the fleets.
func (in *injection) othersAreServed(ctx context.Context, dead string, gatewayStarts bool) error {
	served := func(when string, timeout time.Duration) error {
		for _, o := range in.observers {
			if o.master == dead {
				continue
			}
			if err := o.isServed(ctx, in.system, timeout); err != nil {
				return fmt.Errorf("%s, account %s of %s: %w", when, o.AccountID, o.master, err)
			}
			in.log("%s: the account of %s is served", when, o.master)
		}

		return nil
	}

	if err := served("at once", serveTimeout); err != nil {
		return err
	}

	in.wait(ctx, 5*time.Second, 7*time.Second) // until the others know that it is dead
	if err := served("when the others know", serveTimeout); err != nil {
		return err
	}

	// By now the fleets are stale, if it is their master.
	if err := in.Gateway.AwaitReady(ctx); err != nil {
		return fmt.Errorf("the gateway: %w", err)
	}

	in.Worker.Stop()
	if err := served("when a worker has ended", handOverTimeout); err != nil {
		return err
	}

	programs := []*stack.Program{in.Worker, in.Reporting}
	if gatewayStarts {
		programs = append(programs, in.Gateway)
	}

	for _, p := range programs {
		p.Stop()
		if err := in.restart(ctx, p, startTimeout); err != nil {
			return err
		}
		if err := p.AwaitReady(ctx); err != nil {
			return fmt.Errorf("a program that starts: %w", err)
		}
		in.log("%s has started", p.Name)
	}

	if !gatewayStarts {
		return nil // nor can the sandbox courier, which was started again with the worker
	}

	return served("after a start", handOverTimeout)
}

// masterReplaced kills a master. Its replica takes its place, and it comes back as a replica of that.
func (in *injection) masterReplaced(ctx context.Context) error {
	return in.replaced(ctx, func(master, _ *stack.Redis) error {
		in.kill(master.Program)
		return nil
	})
}

// failover has a replica take over, once it has all that its master has.
func (in *injection) failover(ctx context.Context) error {
	return in.replaced(ctx, func(_, replica *stack.Redis) error {
		_, err := replica.Command(ctx, "CLUSTER", "FAILOVER")
		return err
	})
}

// replaced has a drawn master replaced. The accounts of the others must be served while that lasts.
func (in *injection) replaced(ctx context.Context, begin func(master, replica *stack.Redis) error) error {
	replica, master, err := in.drawReplica(ctx)
	if err != nil {
		return err
	}
	if err := begin(master, replica); err != nil {
		return err
	}

	in.times.Add(1)
	in.log("%s is replaced by %s", master.Addr, replica.Addr)

	for _, o := range in.observers {
		if o.master == master.Addr {
			o.master = replica.Addr
			continue
		}
		if err := o.isServed(ctx, in.system, serveTimeout); err != nil {
			return fmt.Errorf("while %s is replaced, account %s of %s: %w", master.Addr, o.AccountID, o.master, err)
		}
	}

	err = harness.Await(ctx, replica.Addr+" to be a master", faultTimeout, pollInterval, func() (bool, error) {
		role, err := replica.Command(ctx, "ROLE")
		return err == nil && strings.HasPrefix(role, "master\n"), nil
	})

	return errors.Join(err, in.restart(ctx, master.Program, startTimeout), in.cluster.AwaitWhole(ctx))
}

// drawReplica draws a replica that has all that its master has.
func (in *injection) drawReplica(ctx context.Context) (replica, master *stack.Redis, err error) {
	for _, i := range in.random.Perm(len(in.cluster.Nodes)) {
		replica = in.cluster.Nodes[i]
		role, err := replica.Command(ctx, "ROLE") // of a replica: slave, its master's host and port
		if err != nil {
			return nil, nil, err
		}

		fields := strings.Split(role, "\n")
		if fields[0] != "slave" || len(fields) < 3 {
			continue
		}

		addr := net.JoinHostPort(fields[1], fields[2])
		at := slices.IndexFunc(in.cluster.Nodes, func(node *stack.Redis) bool { return node.Addr == addr })
		if at < 0 {
			return nil, nil, fmt.Errorf("%s follows %s, which is not in the cluster", replica.Addr, addr)
		}

		return replica, in.cluster.Nodes[at], replica.AwaitSynced(ctx)
	}

	return nil, nil, errors.New("the cluster has no replica")
}

// kill kills a process at once.
func (s *system) kill(p *stack.Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Kill()
}

// addProxies puts a proxy in front of each address.
func (s *system) addProxies(upstreams map[string]string) error {
	s.proxies = make(map[string]*failpoint.Proxy)
	for name, upstream := range upstreams {
		proxy, err := failpoint.NewProxy(upstream)
		if err != nil {
			return err
		}
		s.proxies[name] = proxy
		s.ends = append(s.ends, proxy.Refuse)
	}

	return nil
}
