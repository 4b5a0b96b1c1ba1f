// Command demo is `make demo`: on free ports and in a temporary folder it starts the whole system, plays a vendor's
// day against it (package day), and prints the figures and the payment reports of that day. It exits 0 only when
// they balance.
//
// With -pictures it also takes PANEL.md's pictures of that day.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/harness"
)

const usage = `Usage: make demo [PICTURES=yes] [ARGS='flags']

Plays a vendor's day against a whole system of its own, on free ports and in a
temporary folder, and prints its figures and payment reports. Exits 0 only when
they balance; with pictures, also only when every page is small enough and no
browser complained.
`

func main() {
	orders := flag.Int("orders", 300, "distinct orders, some of them invalid")
	pictures := flag.String("pictures", "", "take PANEL.md's pictures of the day into this `folder`, with a Chromium")
	keep := flag.Bool("keep", false, "keep the folder with data and logs")
	harness.Main("demo", usage, func(ctx context.Context) error {
		o := stack.Options{CourierStep: 200 * time.Millisecond, Reporting: true, Out: os.Stdout}
		d := day.Options{Orders: *orders}
		if *pictures != "" {
			// Slower, so that the day lasts some minutes and a courier's moves have different times.
			o.CourierStep = 6 * time.Second
			d.Rate = 2
		}

		return harness.WithSystem(ctx, os.Stdout, *keep, o, func(ctx context.Context, s *harness.System) error {
			d.Demo = s.Demo
			if *pictures == "" {
				return play(ctx, s, d)
			}
			return playForPictures(ctx, s, d, *pictures)
		})
	})
}

func play(ctx context.Context, s *harness.System, o day.Options) error {
	d, err := day.New(o)
	if err != nil {
		return err
	}
	s.Hooks.Handle("/", d)
	return d.Run(ctx, os.Stdout)
}

// playForPictures plays the day among other vendors, adds what else the panel shows, and takes the pictures.
func playForPictures(ctx context.Context, s *harness.System, o day.Options, folder string) error {
	scene := &scene{System: s}
	if err := scene.openNeighbours(ctx); err != nil {
		return err
	}
	if err := play(ctx, s, o); err != nil {
		return err
	}
	if err := scene.complete(ctx); err != nil {
		return err
	}

	return scene.takePictures(ctx, folder)
}
