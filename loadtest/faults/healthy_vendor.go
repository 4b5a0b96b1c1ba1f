package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// healthyCommand is the argument with which this program acts as a healthy vendor only. That runs in a
// process of its own: the scheduler and the garbage collector of the process that holds a
// neighbour's thousand connections would add delays that are not the service's.
const healthyCommand = "healthy"

// healthyLoad is what a healthy vendor's process reads from its standard input.
type healthyLoad struct {
	Addr        string // host:port of the Vendor API
	Order       string // loadVendor.order
	First       int    // number of the first order
	Connections int
	Rate        float64 // orders a second
	Duration    time.Duration
}

// healthyTally is what a healthy vendor's process writes to its standard output.
type healthyTally struct {
	Due, Sent, Accepted int
	P99                 time.Duration // of the accepted ones, from when they fell due
	Problems            string        // tally.problems
}

// healthy sends a vendor's orders for the length of a round from a process of its own, and returns
// what that process counted.
func (s *ownSystem) healthy(ctx context.Context, vendor *loadVendor) (t healthyTally, err error) {
	asked, err := json.Marshal(healthyLoad{
		Addr:        s.addr,
		Order:       vendor.order,
		First:       s.firstNumber(),
		Connections: healthyConnections,
		Rate:        healthyRate,
		Duration:    s.form.neighbour,
	})
	if err != nil {
		return t, err
	}
	self, err := os.Executable()
	if err != nil {
		return t, err
	}

	client := exec.CommandContext(ctx, self, healthyCommand)
	client.Stdin = bytes.NewReader(asked)
	client.Stderr = os.Stderr
	seen, err := client.Output()
	if err != nil {
		return t, fmt.Errorf("the healthy vendor's client: %w", err)
	}

	return t, json.Unmarshal(seen, &t)
}

// runHealthyVendor is the main function of a healthy vendor's process: it reads a healthyLoad from
// in, sends its orders, and writes a healthyTally to out.
func runHealthyVendor(ctx context.Context, in io.Reader, out io.Writer) error {
	var asked healthyLoad
	if err := json.NewDecoder(in).Decode(&asked); err != nil {
		return err
	}

	vendor := &loadVendor{order: asked.Order}
	orders := load{
		addr:        asked.Addr,
		connections: asked.Connections,
		rate:        asked.Rate,
		duration:    asked.Duration,
		accepts:     created,
	}

	orders.request = func(dst []byte, n int) ([]byte, placed) {
		o := placed{vendor: vendor, number: asked.First + n}
		return fmt.Appendf(dst, vendor.order, o.number), o
	}

	t := orders.send(ctx)

	return json.NewEncoder(out).Encode(healthyTally{
		Due:      t.arrived,
		Sent:     t.sent,
		Accepted: len(t.orders),
		P99:      p99(t.accepted),
		Problems: t.problems(),
	})
}
