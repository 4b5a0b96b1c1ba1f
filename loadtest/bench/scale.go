package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// masters of the cluster; the fewest that Redis Cluster takes.
const masters = 3

// topology is a number of gateways over one Redis or a cluster, and what it
// took, round by round.
type topology struct {
	title    string
	system   *system
	gateways int
	cells    []cell
}

// cell is one topology in one round: accepted orders per second, and how many
// cores each kind of process kept busy meanwhile. rest is what else the machine
// did: its kernel's work for the disk, Redis rewriting its file.
type cell struct {
	orders                            float64
	gateway, redis, worker, generator float64
	rest, idle                        float64
}

// scaleReport is what -scale leaves behind.
type scaleReport struct {
	Machine    harness.Machine `json:"machine"`
	Rounds     int             `json:"rounds"`
	Topologies []scaledFigures `json:"topologies"`
}

type scaledFigures struct {
	Title     string  `json:"title"`
	Orders    *spread `json:"orders_per_second"`
	Ratio     *spread `json:"ratio_to_the_first"`
	Gateway   *spread `json:"gateway_cores"`
	Redis     *spread `json:"redis_main_thread_cores"`
	Worker    *spread `json:"worker_cores"`
	Generator *spread `json:"load_cores"`
	Rest      *spread `json:"other_cores"`
	Idle      *spread `json:"idle_cores"`
}

// runScale puts the same load, as many orders as are accepted, on each topology
// in turn. All of them are up all the time; those without load are idle.
func (b *bench) runScale(ctx context.Context) error {
	m := harness.DescribeMachine(ctx)
	fmt.Fprintf(b.out, "%s\n", m)
	single, err := b.startSystem(ctx, "single", "")
	if err != nil {
		return err
	}
	defer single.Stop()
	ctx, release := single.bound(ctx)
	defer release()
	cluster, err := stack.StartCluster(ctx, filepath.Join(b.dir, "cluster"), masters)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	fmt.Fprintf(b.out, "start cluster of %d  %s\n", masters, cluster.URL)
	spreadOut, err := b.startSystem(ctx, "clustered", cluster.URL)
	if err != nil {
		return err
	}
	defer spreadOut.Stop()
	ctx, free := spreadOut.bound(ctx)
	defer free()
	spreadOut.redises = append(spreadOut.redises, cluster.Nodes...)
	r, err := b.measureScale(ctx, []*topology{
		{title: "1 gateway, 1 Redis", system: single, gateways: 1},
		{title: "2 gateways, 1 Redis", system: single, gateways: 2},
		{title: "4 gateways, 1 Redis", system: single, gateways: 4},
		{title: "1 gateway, cluster of 3", system: spreadOut, gateways: 1},
		{title: "4 gateways, cluster of 3", system: spreadOut, gateways: 4},
	})
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	r.Machine = m
	r.print(b.out)
	return harness.WriteJSON(b.json, r, b.out)
}

func (b *bench) measureScale(ctx context.Context, topologies []*topology) (scaleReport, error) {
	r := scaleReport{Rounds: b.rounds}
	for _, t := range topologies {
		if err := t.system.growTo(ctx, t.gateways); err != nil {
			return r, err
		}
	}
	for round := range b.rounds {
		for i := range topologies {
			t := topologies[(i+round)%len(topologies)]
			c, err := t.measure(ctx, b.lasting(6*time.Second))
			if err != nil {
				return r, fmt.Errorf("%s: %w", t.title, err)
			}
			t.cells = append(t.cells, c)
			b.progress(round, "%-26s %9s orders/s", t.title, harness.Number(c.orders))
		}
	}
	for _, t := range topologies {
		r.Topologies = append(r.Topologies, t.figures(topologies[0]))
	}
	return r, nil
}

// growTo starts gateways until there are n.
func (s *system) growTo(ctx context.Context, n int) error {
	for len(s.gateways) < n {
		g, origin, err := s.AddGateway(ctx)
		if err != nil {
			return err
		}
		addr, err := hostOf(origin)
		if err != nil {
			return err
		}
		s.gateways, s.vendorAddrs = append(s.gateways, g), append(s.vendorAddrs, addr)
	}
	return nil
}

// measure keeps the topology's gateways busy and looks at who was busy.
func (t *topology) measure(ctx context.Context, length time.Duration) (cell, error) {
	before, err := t.system.usage(ctx)
	if err != nil {
		return cell{}, err
	}
	r, err := t.system.create(ctx, t.system.vendorAddrs[:t.gateways], length)
	if err != nil {
		return cell{}, err
	}
	after, err := t.system.usage(ctx)
	if err != nil {
		return cell{}, err
	}
	u, seconds := after.since(before), r.Elapsed.Seconds()
	return cell{
		orders: r.PerSecond(), gateway: u.gateway / seconds, redis: u.redis / seconds,
		worker: u.worker / seconds, generator: u.generator / seconds,
		rest: max(0, u.busy-u.gateway-u.redis-u.worker-u.generator) / seconds, idle: u.idle / seconds,
	}, t.system.settle(ctx)
}

// figures are the topology's medians, and its ratio to the first one's, round
// by round.
func (t *topology) figures(first *topology) scaledFigures {
	var ratios []float64
	for i, c := range t.cells {
		ratios = append(ratios, c.orders/first.cells[i].orders)
	}
	of := func(pick func(cell) float64) *spread {
		var list []float64
		for _, c := range t.cells {
			list = append(list, pick(c))
		}
		return spreadOf(list)
	}
	return scaledFigures{
		Title:     t.title,
		Orders:    of(func(c cell) float64 { return c.orders }),
		Ratio:     spreadOf(ratios),
		Gateway:   of(func(c cell) float64 { return c.gateway }),
		Redis:     of(func(c cell) float64 { return c.redis }),
		Worker:    of(func(c cell) float64 { return c.worker }),
		Generator: of(func(c cell) float64 { return c.generator }),
		Rest:      of(func(c cell) float64 { return c.rest }),
		Idle:      of(func(c cell) float64 { return c.idle }),
	}
}

// busy is "0.80, 33 us": cores, and microseconds of them per order.
func (t *scaledFigures) busy(cores *spread) string {
	return fmt.Sprintf("%.2f, %s us", cores.Median, harness.Number(cores.Median*1e6/t.Orders.Median))
}

func (r *scaleReport) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%d rounds; medians, in brackets the rounds' least and greatest; busy cores, and CPU per order\n\n", r.Machine, r.Rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\taccepted orders/s\tto 1 gateway\tgateways\tRedis\tworker\tload\tother\tidle")
	for _, t := range r.Topologies {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\n", t.Title, t.Orders, t.Ratio,
			t.busy(t.Gateway), t.busy(t.Redis), t.busy(t.Worker), t.busy(t.Generator), t.Rest.Median, t.Idle.Median)
	}
	_ = w.Flush() // nobody reads it
	fmt.Fprintf(out, "\nEverything shares these %d cores, the load included: where few are idle, more processes\n"+
		"divide what there is. Redis is the main threads alone; other is the kernel's work for\n"+
		"the disk, and Redis rewriting its file.\n", r.Machine.Cores)
}
