// Command reporting is finance's side of the service: it exports orders to
// ClickHouse, reconciles both every day, writes payment reports, serves the panel
// and tracking pages, and makes backups. `reporting help` lists its commands.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	_ "time/tzdata" // ClickHouse names time zones, and not every machine has them

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
	"vendorapi/internal/version"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/deliver"
	"vendorapi/reporting/journal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "reporting:", err)
		status := 1
		if e, ok := errors.AsType[*exitError](err); ok {
			status = e.status
		}
		os.Exit(status)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "reporting",
		Short:         "Finance: ClickHouse, reports, reconciliation",
		SilenceUsage:  true, // an error of the work is not one of the command line
		SilenceErrors: true, // main prints it, once
		Version:       version.String(),
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if flagSet(c, checkFlag) {
				return serve(c, nil)
			}
			return c.Help()
		},
	}

	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.Flags().Bool(checkFlag, false, "the same as reporting serve --check-config")
	addConfigFlag(root)
	root.AddCommand(
		newServeCommand(), newServingCommand("export", &[]string{roleExport}),
		newReportCommand(), newReconcileCommand(), newRebuildCommand(), newMigrateCommand(),
		newBackupCommand(), newRestoreCommand(), newEraseCommand(),
		newUserCommand(), newTokenCommand(), newAdminKeyCommand(), newAuditCommand(), newMonthCommand(),
	)

	return root
}

//go:embed help.yaml
var helpFile []byte

// help is the file's texts by the names of commands.
var help = sync.OnceValues(func() (texts map[string]struct{ Short, Long, Example string }, err error) {
	return texts, yaml.UnmarshalWithOptions(helpFile, &texts, yaml.Strict())
})

func newCommand(use string, args cobra.PositionalArgs, run func(c *cobra.Command, args []string) error) *cobra.Command {
	texts, err := help()
	name, _, _ := strings.Cut(use, " ")
	text, known := texts[name]
	if !known {
		panic(fmt.Sprintf("help.yaml has no texts of %s: %v", name, err)) // any command shows it
	}
	return &cobra.Command{Use: use, Short: text.Short, Long: text.Long, Example: text.Example, Args: args, RunE: run}
}

const configFlag = "config"

func addConfigFlag(c *cobra.Command) {
	c.Flags().String(configFlag, "configs/reporting.yaml", "the settings file")
}

func newSettingsCommand(use string, run func(c *cobra.Command) error) *cobra.Command {
	c := newCommand(use, cobra.NoArgs, func(c *cobra.Command, _ []string) error { return run(c) })
	addConfigFlag(c)
	return c
}

// progressTo writes how far long work has got.
func progressTo(c *cobra.Command) func(text string) {
	return func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }
}

func requireFlag(c *cobra.Command, name string) {
	if err := c.MarkFlagRequired(name); err != nil {
		panic(err) // the flag's name is misspelt
	}
}

func flagSet(c *cobra.Command, name string) bool {
	set, err := c.Flags().GetBool(name)
	return err == nil && set
}

// stores are what a command works with; nil where it did not ask for it.
type stores struct {
	ledger  *ledger.Ledger
	archive *archive.Archive
	log     *slog.Logger
	deliver deliver.Settings

	booksKeys journal.Keys
}

// withStores reads the settings, opens Redis and, as asked for, ClickHouse, does the work and closes
// them. With both it fails when something is missing in ClickHouse's database, or when that is
// another ledger's.
func withStores(c *cobra.Command, clickHouse bool, work func(ctx context.Context, s stores) error) error {
	return withUncheckedStores(c, true, clickHouse, func(ctx context.Context, s stores) error {
		if clickHouse {
			if err := checkHistory(ctx, s.ledger, s.archive); err != nil {
				return err
			}
		}
		return work(ctx, s)
	})
}

// withUncheckedStores opens Redis and ClickHouse, as asked for, whatever ClickHouse's database is.
func withUncheckedStores(c *cobra.Command, redis, clickHouse bool, work func(ctx context.Context, s stores) error) (err error) {
	settings, err := loadSettings(c)
	if err != nil {
		return err
	}

	s := stores{log: settings.Log.Logger(c.ErrOrStderr()), deliver: settings.Deliver, booksKeys: settings.ClickHouse.BooksKeys}
	if clickHouse {
		s.archive, err = archive.Open(settings.ClickHouse)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.archive.Close()) }()
	}

	if redis {
		s.ledger, err = settings.openLedger(c.Context(), s.log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.ledger.Close()) }()
	}

	if redis && clickHouse {
		s.archive.UseHead(s.ledger.Books.Head)
	}

	return work(c.Context(), s)
}

// loadSettings reads the settings file of a command, and the keys of the books.
func loadSettings(c *cobra.Command) (*settings, error) {
	s := &settings{}
	if err := config.Load(c.Flag(configFlag).Value.String(), s); err != nil {
		return nil, err
	}
	return s, s.readBooksKeys()
}

// openLedger opens the ledger, which knows Redis's time from here on.
func (s *settings) openLedger(ctx context.Context, log *slog.Logger) (*ledger.Ledger, error) {
	l, err := ledger.Open(ctx, s.Redis.Ledger(s.Environment, log))
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	if _, err := l.ServerTime(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func accessCommand(use string, run func(c *cobra.Command, name string, roles auth.Roles) error) *cobra.Command {
	var text string
	c := newCommand(use, cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		roles, err := auth.ParseRoles(text)
		if err != nil {
			return fmt.Errorf("--roles: %w", err)
		}
		return run(c, args[0], roles)
	})

	c.Flags().StringVar(&text, "roles", "", "operator, finance, closer (with finance), or several with commas")
	requireFlag(c, "roles")

	return c
}

func newUserCommand() *cobra.Command {
	return accessCommand("user NAME --roles ROLES", func(c *cobra.Command, name string, roles auth.Roles) error {
		password, err := askPassword(c.InOrStdin(), c.ErrOrStderr(), name, true)
		if err != nil {
			return err
		}
		user, err := auth.NewUser(name, roles, password)
		if err != nil {
			return err
		}

		fmt.Fprintln(c.OutOrStdout(), user.Line())

		return nil
	})
}

func newTokenCommand() *cobra.Command {
	return accessCommand("token NAME --roles ROLES", func(c *cobra.Command, name string, roles auth.Roles) error {
		text, token, err := auth.NewToken(name, roles)
		return printSecret(c, "token", name, text, token.Line(), err)
	})
}

func newAdminKeyCommand() *cobra.Command {
	return newCommand("admin-key NAME", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		key, line, err := auth.NewAdminKey(args[0])
		return printSecret(c, "admin key", args[0], key, line, err)
	})
}

func printSecret(c *cobra.Command, what, name, secret, line string, err error) error {
	if err == nil {
		fmt.Fprintf(c.ErrOrStderr(), "The %s of %s, shown this once:\n%s\n", what, name, secret)
		_, err = fmt.Fprintln(c.OutOrStdout(), line)
	}
	return err
}

// askPassword asks on a terminal, which shows nothing of what is typed, twice for a new password,
// and reads one line of anything else.
func askPassword(in io.Reader, prompt io.Writer, name string, isNew bool) (string, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(in, 4*auth.MostPassword)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
	}

	ask := func(question string) (string, error) {
		fmt.Fprint(prompt, question)
		typed, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(prompt) // the one that was typed is not shown either
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return string(typed), nil
	}

	first, err := ask("Password for " + name + ": ")
	if err != nil || !isNew {
		return first, err
	}

	second, err := ask("Once more: ")
	if err == nil && first != second {
		err = errors.New("the two passwords differ")
	}

	return first, err
}
