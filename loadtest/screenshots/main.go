// Command screenshots is `make screenshots`: it starts a whole system of its own
// on free ports and in a temporary folder, plays a day on it that has what a
// real one has (several vendors and fleets, receivers of webhooks that fail, one
// that is unreachable, refusals, couriers under way), takes the pictures of the
// panel for reporting/PANEL.md with a Chromium, and measures every page of the panel: its bytes over
// the wire and how long it takes to be answered.
//
// It exits 0 when every picture was taken, nothing in the browser's console spoke
// against a page, and no page is too large. Days before today are today's orders again, put into
// ClickHouse at earlier times, since nobody waits two weeks for a chart.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	defer listener.Close()
	s, err := stack.Start(ctx, stack.Options{
		DataDir: dir, CourierStep: courierStep, WebhookURL: "http://" + listener.Addr().String() + "/", Reporting: true, Out: out,
	})
	if err != nil {
		return err
	}
	defer s.Stop()
	w := &world{Stack: s, out: out, admin: client.New("", 16).As(s.Demo.OpsURL+"/api/admin/v1", s.Demo.AdminKey)}
	defer w.close()
	if err := w.play(ctx, f, listener); err != nil {
		return err
	}
	return w.show(ctx, f)
}

// play makes the day: the demo's vendor plays one that adds up (package day), the
// others send what their branches sell, and things go wrong as they do.
func (w *world) play(ctx context.Context, f flags, listener net.Listener) error {
	if err := w.build(ctx); err != nil {
		return fmt.Errorf("build the world: %w", err)
	}
	length := time.Duration(f.minutes * float64(time.Minute))
	const orders = 300
	d := day.New(day.Options{
		BaseURL: w.Demo.BaseURL, ClientID: w.Demo.Account.ClientID, ClientSecret: w.Demo.Account.ClientSecret,
		FleetID: w.Demo.Fleet.FleetID, Orders: orders, Prefix: "AS-", Rate: min(11, orders*1.05/length.Seconds()), Settle: 3 * time.Minute,
	})
	r, err := receiver.New(receiver.Options{Secrets: []string{w.Demo.Webhook.Secret}, Seen: d.Seen})
	if err != nil {
		return err
	}
	w.serve(listener, r)
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		summary, err := d.Play(within, r)
		if err == nil && len(summary.Problems) > 0 {
			summary.Print(w.out)
			err = fmt.Errorf("the day does not add up")
		}
		return err
	})
	for i, v := range w.vendors {
		group.Go(func() error { return v.sell(within, i, length) })
	}
	w.say("playing the day, %v", length)
	if err := group.Wait(); err != nil {
		return err
	}
	w.say("leaving some orders on their way")
	t, err := w.goWrong(ctx)
	if err != nil {
		return err
	}
	if err := w.rememberEarlierDays(ctx); err != nil {
		return err
	}
	return t.tell(ctx)
}

func (w *world) say(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }
