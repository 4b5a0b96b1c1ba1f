// Command demo is `make demo`: on free ports and in a temporary folder it starts the whole system, plays a vendor's
// day against it (package day), and prints a summary and the payment reports of that day. It exits 0 only when the
// summary balances and the reports reconcile with what the vendor sent.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/harness"
)

const usage = `Usage: make demo [ARGS='flags']

Plays a vendor's day against a whole system of its own, on free ports and in a
temporary folder, and prints its figures and payment reports. Exits 0 only when
they balance.
`

func main() {
	orders := flag.Int("orders", 300, "distinct orders, some of them invalid")
	seed := flag.Uint64("seed", 1, "the same seed plans the same day")
	step := flag.Duration("step", 200*time.Millisecond, "time between the sandbox courier's moves")
	keep := flag.Bool("keep", false, "keep the folder with data and logs")
	harness.Main("demo", usage, func(ctx context.Context) error {
		out := os.Stdout
		return harness.WithSystem(ctx, out, *keep, stack.Options{CourierStep: *step, Reporting: true, Out: out},
			func(ctx context.Context, s *harness.System) error {
				return play(ctx, s, out, day.Options{Demo: s.Demo, Orders: *orders, Seed: *seed, Prefix: "DEMO-"})
			})
	})
}

func play(ctx context.Context, s *harness.System, out *os.File, o day.Options) error {
	var bar *progressbar.ProgressBar
	o.Progress = func(done, total int) {
		if bar == nil {
			bar = newBar(out, total)
		}
		_ = bar.Set(done) // a bar that cannot be drawn changes nothing
	}
	d, err := day.New(o)
	if err != nil {
		return err
	}
	s.Hooks.Handle("/", d)
	return d.Run(ctx, out)
}

// newBar draws into a terminal as things happen; into a log, every few seconds.
func newBar(out *os.File, total int) *progressbar.ProgressBar {
	pause := 5 * time.Second
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		pause = 100 * time.Millisecond
	}
	return progressbar.NewOptions(total,
		progressbar.OptionSetDescription("orders"),
		progressbar.OptionSetWriter(out),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(pause),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(out, "\nwaiting for the last webhooks") }))
}
