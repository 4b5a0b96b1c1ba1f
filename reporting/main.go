// Command reporting is finance's side of the service: it exports orders to
// ClickHouse, reconciles both every day, writes payment reports, serves the panel
// and tracking pages, and makes backups. `reporting help` lists its commands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // ClickHouse names time zones, and not every machine has them

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "reporting:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "reporting",
		Short:         "Finance: ClickHouse, reports, reconciliation",
		SilenceUsage:  true, // an error of the work is not one of the command line
		SilenceErrors: true, // main prints it, once
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if flagSet(c, checkFlag) {
				return serve(c, nil)
			}
			return c.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.Flags().Bool(checkFlag, false, "the same as reporting serve --check-config")
	root.Flags().String(configFlag, defaultConfig, configUsage)
	root.AddCommand(
		newServeCommand(), newExportCommand(),
		newReportCommand(), newReconcileCommand(), newRebuildCommand(), newMigrateCommand(),
		newBackupCommand(), newRestoreCommand(),
		newUserCommand(), newTokenCommand(),
	)
	return root
}
