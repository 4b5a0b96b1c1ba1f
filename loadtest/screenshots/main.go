// Command screenshots is `make screenshots`: it plays a day against a system of its
// own that has what a real one has (several vendors and fleets, failing and
// unreachable receivers, refusals, couriers on their way), takes the README's pictures
// with a Chromium, and measures every page of the panel: its bytes over the wire and
// its time to answer. Days before today are today's orders again at earlier times.
//
// It exits 0 when every picture was taken, the browser's console shows no fault, and
// no page is too large.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/receiver"
)

// courierStep makes a delivery take half a minute: the courier's moves then have
// different times.
const courierStep = 6 * time.Second

type flags struct {
	out     string
	minutes float64
	reads   int
	keep    bool
}

const usage = `Usage: make screenshots [ARGS='flags']

Plays a day against a whole system of its own and takes PANEL.md's pictures of
the panel and the tracking page with a Chromium. Exits 0 only when every page is
small enough and no browser complained.

Flags:
`

func main() {
	var f flags
	flag.StringVar(&f.out, "out", filepath.Join("reporting", "screenshots"), "folder for the pictures")
	flag.Float64Var(&f.minutes, "minutes", 3, "length of the day that is played")
	flag.IntVar(&f.reads, "reads", 20, "reads of each page for its median time")
	flag.BoolVar(&f.keep, "keep", false, "keep the folder with data and logs")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, f, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "vendor-screenshots-")
	if err != nil {
		return err
	}
	defer func() {
		if f.keep || err != nil {
			fmt.Fprintln(out, "data and logs:", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	hooks := http.NewServeMux()
	hooksURL, stop, err := receiver.Serve(hooks)
	if err != nil {
		return err
	}
	defer stop()
	s, err := stack.Start(ctx, stack.Options{
		DataDir: dir, CourierStep: courierStep, WebhookURL: hooksURL + "/", Reporting: true, Out: out,
	})
	if err != nil {
		return err
	}
	defer s.Stop()
	e := &env{Stack: s, out: out, hooks: hooks, hooksURL: hooksURL}
	if e.api, err = s.Demo.Connect(ctx, client.New("", 16)); err != nil {
		return err
	}
	if err := e.play(ctx, f); err != nil {
		return err
	}
	return e.show(ctx, f)
}

// env is a running system with its vendors.
type env struct {
	*stack.Stack
	out      io.Writer
	api      *stack.APIs
	hooks    *http.ServeMux // receivers
	hooksURL string
	vendors  []*vendor
	tracked  string       // path of a tracking link whose order is on its way
	locate   func() error // reports where its courier is
}

// play makes the day: the demo's vendor plays one that balances (package day), the
// others send what their branches sell, and things go wrong as they do.
func (e *env) play(ctx context.Context, f flags) error {
	if err := e.open(ctx); err != nil {
		return fmt.Errorf("open the vendors: %w", err)
	}
	length := time.Duration(f.minutes * float64(time.Minute))
	const orders = 300
	d, err := day.New(day.Options{
		Demo: e.Demo, Orders: orders, Prefix: "AS-", Rate: min(11, orders*1.05/length.Seconds()), Settle: 3 * time.Minute,
	})
	if err != nil {
		return err
	}
	e.hooks.Handle("/", d)
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		summary, err := d.Play(within)
		if err == nil && len(summary.Problems) > 0 {
			summary.Print(e.out)
			err = fmt.Errorf("the day does not balance")
		}
		return err
	})
	for i, v := range e.vendors {
		group.Go(func() error { return v.sell(within, i, length) })
	}
	e.log("playing the day, %v", length)
	if err := group.Wait(); err != nil {
		return err
	}
	e.log("leaving some orders on their way")
	if err := e.leaveOpen(ctx); err != nil {
		return err
	}
	if err := e.fillEarlierDays(ctx); err != nil {
		return err
	}
	return e.locate()
}

func (e *env) log(format string, args ...any) { fmt.Fprintf(e.out, format+"\n", args...) }
