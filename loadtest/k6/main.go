// Command k6 is `make loadtest`: it has k6 play the scripts of loadtest/, against systems of its own or against a
// deployment, and checks from outside what k6 cannot: an exact count of what the limits let through, and the webhooks
// that arrived. It leaves a page, a JSON and a JUnit file.
//
//	main ── script    what a script needs and how long it takes (k6 inspect)
//	     ├─ target    own_systems: a system for each script; or a deployment
//	     ├─ play      k6, the programs that are watched beside it, and outages
//	     ├─ webhooks  receivers: webhooks that arrived; attempts: those that the service says it delivered
//	     └─ stored    figures, page, JUnit and comparison (package results), from the files that k6 leaves
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"vendorapi/loadtest/harness"
)

const manual = `Usage:
  make loadtest [ARGS='flags']
        plays the k6 scripts of loadtest/, each against a whole system of its own
  make loadtest BASE_URL=https://… ACCOUNTS=file [ARGS='flags']
        plays them against a deployment, as these accounts
  go run ./loadtest/k6 check [flags] FILE…
        checks the samples and summaries of k6 runs by hand, or of the parts of one run
  go run ./loadtest/k6 page FOLDER
        makes the page of a stored run again
  go run ./loadtest/k6 compare OLD NEW
        compares two stored runs; status 1 when something has become slower
  go run ./loadtest/k6 accounts -count 8 -orders 1200 -file FILE
        makes accounts, raises their limits, and gives them back with -restore

It exits 0 only when the service levels, the limits and the webhooks held.
loadtest/K6.md has the scripts, and loadtest/lib/settings.js all settings.
`

func main() {
	commands := map[string]func(context.Context, []string) error{
		"check":    check,
		"page":     makePage,
		"compare":  compare,
		"accounts": prepareAccounts,
	}

	if len(os.Args) > 1 {
		command := commands[os.Args[1]]
		if command != nil {
			harness.Run("loadtest "+os.Args[1], func(ctx context.Context) error { return command(ctx, os.Args[2:]) })
			return
		}
	}

	var o options
	o.addFlags(flag.CommandLine)
	harness.Main("loadtest", manual, func(ctx context.Context) error {
		if err := refuseArguments(flag.CommandLine); err != nil {
			return err
		}
		return o.run(ctx)
	})
}

// refuseArguments returns an error if something follows the flags. Without it a misspelt command would play all scripts.
func refuseArguments(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is neither a command nor a flag (-help)", flags.Arg(0))
	}
	return nil
}

// options are the flags of a run; addFlags says what each means.
type options struct {
	scripts  string   // names, separated by commas
	own      textList // paths of the caller's own scripts, which replace those of loadtest/
	duration time.Duration
	outputs  textList
	receiver receiverOptions

	keep    bool
	earlier string // path of the result to compare with; empty for none
	install bool
}

// textList is the value of a flag that may be given several times.
type textList []string

// String returns the values, separated by commas.
func (l *textList) String() string { return strings.Join(*l, ",") }

// Set adds a value; it never fails.
func (l *textList) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// addFlags defines the flags of a run.
func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.scripts, "scripts", "", "which of loadtest/*.js, separated by commas; empty: all that the target allows")
	flags.Var(&o.own, "script", "a script `file` of your own, instead of those; may be repeated")
	flags.DurationVar(&o.duration, "duration", 40*time.Second,
		"how long scripts whose length is free take (DURATION in the environment wins)")
	flags.BoolVar(&o.keep, "keep", false, "keep the samples of scripts that held, too, and the data of systems")
	flags.Var(&o.outputs, "out", "an additional `output` of k6, such as experimental-prometheus-rw; may be repeated")
	flags.StringVar(&o.earlier, "compare", "", "a result.json of an earlier run, to compare with")
	flags.BoolVar(&o.install, "install", false, "only make sure that k6 is there")
	flags.StringVar(&o.receiver.url, "receiver-url", "", "`URL` at which the deployment reaches this machine, for webhooks")
	flags.StringVar(&o.receiver.addr, "receiver-addr", "", "`address` to listen on for -receiver-url, such as :8085")
}

func (o *options) run(ctx context.Context) error {
	k6, err := harness.K6(ctx, os.Stdout)
	if err != nil || o.install {
		return err
	}
	p, err := newPlayer(k6, o)
	if err != nil {
		return err
	}

	t, err := chooseTarget(ctx, o)
	if err != nil {
		return err
	}
	defer t.close()

	chosen, err := p.chooseScripts(ctx, t)
	if err != nil {
		return err
	}

	return p.playAll(ctx, t, chosen)
}

// newFlags returns the flags of a command, whose help says what it does. does continues the sentence "It …".
func newFlags(name, args, does string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: go run ./loadtest/k6 %s [flags] %s\n\nIt %s.\n\nFlags:\n", name, args, does)
		flags.PrintDefaults()
	}
	return flags
}
