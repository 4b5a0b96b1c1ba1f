// Command demo is `make demo`: on free ports and in a temporary folder it starts the
// whole system, plays a vendor's day against it (package day), and prints a summary
// and the payment reports of that day. It exits 0 only when the summary balances and
// the reports reconcile with what the vendor sent.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/receiver"
)

type flags struct {
	orders int
	seed   uint64
	step   time.Duration
	keep   bool
}

const usage = `Usage: make demo [ARGS='flags']

Plays a vendor's day against a whole system of its own, on free ports and in a
temporary folder, and prints its figures and payment reports. Exits 0 only when
they balance.

Flags:
`

func main() {
	var f flags
	flag.IntVar(&f.orders, "orders", 300, "distinct orders, some of them invalid")
	flag.Uint64Var(&f.seed, "seed", 1, "the same seed plans the same day")
	flag.DurationVar(&f.step, "step", 200*time.Millisecond, "time between the sandbox courier's moves")
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
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "vendor-day-")
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
	url, stop, err := receiver.Serve(hooks)
	if err != nil {
		return err
	}
	defer stop()
	s, err := stack.Start(ctx, stack.Options{
		DataDir:     dir,
		CourierStep: f.step,
		WebhookURL:  url + "/",
		Reporting:   true,
		Out:         out,
	})
	if err != nil {
		return err
	}
	defer s.Stop()
	var bar *progressbar.ProgressBar
	d, err := day.New(day.Options{Demo: s.Demo, Orders: f.orders, Seed: f.seed, Prefix: "DEMO-", Progress: func(done, total int) {
		if bar == nil {
			bar = newBar(out, total)
		}
		_ = bar.Set(done) // a bar that cannot be drawn changes nothing
	}})
	if err != nil {
		return err
	}
	hooks.Handle("/", d)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.Wait(ctx)) }()
	summary, err := d.Play(ctx)
	var finance *day.Finance
	if err == nil {
		finance, err = d.ReadFinance(ctx)
	}
	if err != nil {
		return cmp.Or(context.Cause(ctx), err) // why the day ended early
	}
	summary.Print(out)
	finance.Print(out)
	if len(summary.Problems)+len(finance.Problems) > 0 {
		return errors.New("the day does not balance")
	}
	return nil
}

// newBar draws into a terminal as things happen; into a log, every few seconds.
func newBar(out io.Writer, total int) *progressbar.ProgressBar {
	pause := 5 * time.Second
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			pause = 100 * time.Millisecond
		}
	}
	return progressbar.NewOptions(total,
		progressbar.OptionSetDescription("orders"),
		progressbar.OptionSetWriter(out),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(pause),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(out, "\nwaiting for the last webhooks") }))
}
