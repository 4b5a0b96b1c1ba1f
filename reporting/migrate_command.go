package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"vendorapi/reporting/archive"
)

// newMigrateCommand is `reporting migrate`.
func newMigrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create or bring up to date the database, its tables and views",
		Long: `Create or bring up to date the database, its tables and views.

export, serve, rebuild and reconcile do so by themselves when they start. What
has been applied is recorded in the table schema_migrations; running it again
changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withArchive(c, func(_ context.Context, _ *archive.Archive, applied []string) error {
				for _, name := range applied {
					fmt.Fprintln(c.OutOrStdout(), "applied", name)
				}
				if len(applied) == 0 {
					fmt.Fprintln(c.OutOrStdout(), "nothing to do")
				}
				return nil
			})
		},
	}
	addConfigFlag(c)
	return c
}
