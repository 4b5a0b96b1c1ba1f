package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// masters of the cluster; the fewest that Redis Cluster takes.
const masters = 3

// topology is a number of gateways over one Redis or a cluster, and what it took, round by round: accepted orders per
// second, and how many cores each kind of process kept busy meanwhile.
type topology struct {
	title    string
	system   *system
	gateways int
	rounds   map[string][]float64
}

// Columns of the table, by their names in the JSON.
const (
	ordersColumn = "orders_per_second"
	ratioColumn  = "ratio_to_the_first"
	otherColumn  = "other_cores" // the kernel's work for the disk, Redis rewriting its file
	idleColumn   = "idle_cores"
)

// busyColumns are the cores of each kind of process, and their names in usage.
var busyColumns = [][2]string{
	{"gateway_cores", "gateway_us"}, {"redis_main_thread_cores", "redis_us"}, {"worker_cores", "worker_us"}, {"load_cores", "generator_us"},
}

// measureScale puts the same load, as many orders as are accepted, on each topology in turn. All of them are up all
// the time; those without load are idle.
func (b *bench) measureScale(ctx context.Context) error {
	machine := harness.DescribeMachine(ctx)
	b.progress("%s", machine)
	cluster, err := stack.StartCluster(ctx, b.file("cluster"), masters, 0)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	var topologies []topology
	err = b.withSystem(ctx, "single", nil, func(ctx context.Context, single *system) error {
		return b.withSystem(ctx, "clustered", cluster, func(ctx context.Context, clustered *system) (err error) {
			topologies, err = b.measureTopologies(ctx, single, clustered)
			return err
		})
	})
	if err != nil {
		return err
	}
	return b.printScale(machine, topologies)
}

func (b *bench) measureTopologies(ctx context.Context, single, clustered *system) ([]topology, error) {
	topologies := []topology{
		{title: "1 gateway, 1 Redis", system: single, gateways: 1},
		{title: "2 gateways, 1 Redis", system: single, gateways: 2},
		{title: "4 gateways, 1 Redis", system: single, gateways: 4},
		{title: "1 gateway, cluster of 3", system: clustered, gateways: 1},
		{title: "4 gateways, cluster of 3", system: clustered, gateways: 4},
	}
	for i := range topologies {
		t := &topologies[i]
		t.rounds = map[string][]float64{}
		for len(t.system.gateways) < t.gateways {
			g, origin, err := t.system.AddGateway(ctx)
			if err != nil {
				return nil, err
			}
			t.system.gateways, t.system.addrs = append(t.system.gateways, g), append(t.system.addrs, hostOf(origin))
		}
	}
	if err := b.inTurns(len(topologies), func(round, i int) error {
		t := &topologies[i]
		orders, err := t.measure(ctx, b.lasting(6*time.Second, time.Second))
		if err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
		b.progress("round %d of %d  %-26s %9s orders/s", round+1, b.rounds, t.title, harness.Number(orders))
		return nil
	}); err != nil {
		return nil, err
	}
	for _, t := range topologies {
		for round, orders := range t.rounds[ordersColumn] {
			t.note(ratioColumn, orders/topologies[0].rounds[ordersColumn][round])
		}
	}
	return topologies, nil
}

func (t *topology) measure(ctx context.Context, length time.Duration) (orders float64, err error) {
	var r *harness.Answers
	used, err := t.system.during(ctx, func() (err error) {
		r, err = t.system.create(ctx, t.system.addrs[:t.gateways], length)
		return err
	})
	if err != nil {
		return 0, err
	}
	other := used["busy_us"]
	for _, column := range busyColumns {
		t.note(column[0], used[column[1]]/1e6/r.Elapsed.Seconds())
		other -= used[column[1]]
	}
	t.note(otherColumn, max(0, other)/1e6/r.Elapsed.Seconds())
	t.note(idleColumn, used["idle_us"]/1e6/r.Elapsed.Seconds())
	t.note(ordersColumn, r.PerSecond())
	return r.PerSecond(), t.system.settle(ctx)
}

func (t *topology) note(column string, v float64) { t.rounds[column] = append(t.rounds[column], v) }

func (b *bench) printScale(machine harness.Machine, topologies []topology) error {
	b.progress("\n%s\n%d rounds; medians, in brackets the rounds' least and greatest; busy cores, and CPU per order\n", machine, b.rounds)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\taccepted orders/s\tto 1 gateway\tgateways\tRedis\tworker\tload\tother\tidle")
	var all []map[string]any
	for _, t := range topologies {
		found := map[string]any{"title": t.title}
		for column, rounds := range t.rounds {
			found[column] = harness.SpreadOf(rounds)
		}
		all = append(all, found)
		orders := harness.SpreadOf(t.rounds[ordersColumn])
		fmt.Fprintf(w, "%s\t%s\t%s", t.title, orders, harness.SpreadOf(t.rounds[ratioColumn]))
		for _, column := range busyColumns {
			cores := harness.Median(t.rounds[column[0]])
			fmt.Fprintf(w, "\t%.2f, %s us", cores, harness.Number(cores*1e6/orders.Median))
		}
		fmt.Fprintf(w, "\t%.2f\t%.2f\n", harness.Median(t.rounds[otherColumn]), harness.Median(t.rounds[idleColumn]))
	}
	_ = w.Flush() // the exit status says whether all is well
	b.progress("\nEverything shares these %d cores, the load included: where few are idle, more processes\n"+
		"divide what there is. Redis is the main threads alone; other is the kernel's work for\n"+
		"the disk, and Redis rewriting its file.", machine.Cores)
	return harness.WriteJSON(b.json, map[string]any{"machine": machine, "rounds": b.rounds, "topologies": all}, b.out)
}
