package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"vendorapi/internal/config"
	"vendorapi/internal/version"
)

// Main runs a program until it ends by itself, or by SIGINT or SIGTERM. An error is
// written to standard error and ends the process with 1.
func Main(name string, run func(ctx context.Context, args []string, out, logs io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Program is what differs between programs until they run.
type Program struct {
	Name  string
	Usage string              // stands above the list of flags
	Flags func(*flag.FlagSet) // adds flags to those of Command; optional

	Settings config.Validator // a pointer that the settings file is read into
	Log      *Log             // within Settings
	// Health is where /readyz is served, by Settings.
	Health func() (addr string, secure bool)
	// Narrow applies the command line to the settings; optional.
	Narrow func() error
	// Secrets reads the secrets. The error names all that are missing or malformed.
	Secrets func() (variables []string, err error)
	// Check finds what else is wrong without connecting. An error begins with the key
	// of the settings that is to blame.
	Check func() error
	// Mistakes finds what is well-formed and still can only be a mistake, which the program
	// does not start with. The first error is of the settings, as that of Check; the second
	// of the secrets, and begins with a variable.
	Mistakes func() (settings, secrets error)
	Run      func(ctx context.Context, log *slog.Logger) error
}

// Command is the command line that all programs have.
type Command struct {
	Config        string // the path of the settings file
	Check, Health bool
}

// What the flags of Command do.
const (
	CheckUsage  = "check the settings and secrets without connecting, print what is in force, and end"
	HealthUsage = "ask the %s that runs here with the same settings whether it is ready, and end: 0 if so, else 1"
)

// Execute parses the command line and starts the program. out is for what the
// command line asks for. Asking for help is no error.
func (p *Program) Execute(ctx context.Context, args []string, out, logs io.Writer) error {
	var c Command
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(logs)
	flags.StringVar(&c.Config, "config", "configs/"+p.Name+".yaml", "the settings `file`")
	flags.BoolVar(&c.Check, "check-config", false, CheckUsage)
	flags.BoolVar(&c.Health, "health", false, fmt.Sprintf(HealthUsage, p.Name))
	asked := flags.Bool("version", false, version.Usage)
	if p.Flags != nil {
		p.Flags(flags)
	}

	flags.Usage = func() {} // an error of the command line is one line
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(out, p.Usage) // the client disconnected: nothing to do
		flags.SetOutput(out)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q is no flag; see %s --help", flags.Arg(0), p.Name)
	case *asked:
		_, _ = fmt.Fprintln(out, p.Name, version.String())
		return nil
	}

	return p.Start(ctx, c, out, logs)
}

// Start reads the settings and does what the command line asks for.
func (p *Program) Start(ctx context.Context, c Command, out, logs io.Writer) error {
	if p.Narrow == nil {
		p.Narrow = func() error { return nil }
	}

	err := config.Load(c.Config, p.Settings)
	switch {
	case c.Check:
		return p.check(c.Config, err, out)
	case err != nil:
		return err
	case c.Health:
		addr, secure := p.Health()
		return Ask(ctx, addr, secure)
	}

	if err := p.Narrow(); err != nil {
		return err
	}
	if _, err := p.Secrets(); err != nil {
		return err
	}

	settings, secrets := p.Mistakes()
	if err := errors.Join(config.Locate(c.Config, settings), secrets); err != nil {
		return err
	}

	return p.Run(ctx, p.Log.Logger(logs))
}

// check finds everything that can be found without connecting, and writes what is
// in force. wrong is what reading the settings found.
func (p *Program) check(path string, wrong error, out io.Writer) error {
	usable := wrong == nil
	if usable {
		wrong = p.Narrow()
	}

	variables, missing := p.Secrets()
	if usable {
		settings, secrets := p.Mistakes()
		wrong = errors.Join(wrong, config.Locate(path, errors.Join(p.Check(), settings)))
		if missing == nil {
			missing = secrets // else they are of what is missing
		}
	}

	if err := errors.Join(wrong, missing); err != nil {
		return err
	}

	return config.WriteEffective(out, path, p.Settings, variables...)
}
