package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/config"
	"vendorapi/internal/devclickhouse"
	"vendorapi/internal/devclickhouse/libchdb"
	"vendorapi/internal/service"
)

// newEngineCommand is `reporting engine`.
func newEngineCommand() *cobra.Command {
	var o devclickhouse.Options
	var level, format string
	var bodyMiB int64
	command := &cobra.Command{
		Use:   "engine",
		Short: "Serve the embedded ClickHouse over HTTP on loopback",
		Long: `Serve the embedded ClickHouse over ClickHouse's HTTP interface.

Whoever reaches it can read everything that this process can. With a key in
$ENGINE_KEY, or in the file that $ENGINE_KEY_FILE names, changes need it as the
password of the user default; without one they need nothing. GET /ping answers "Ok." once it is ready;
SIGTERM stops it in order.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Log, err = service.NewLogger(c.ErrOrStderr(), level, format); err != nil {
				return err
			}
			o.MaxBody = bodyMiB << 20
			if os.Getenv("ENGINE_KEY") != "" || os.Getenv("ENGINE_KEY_FILE") != "" {
				if o.Key, err = config.Secret("ENGINE_KEY"); err != nil {
					return err
				}
			}
			o.Ready = func(addr net.Addr) { fmt.Fprintf(c.OutOrStdout(), "http://%s\n", addr) }
			return devclickhouse.Run(c.Context(), o)
		},
	}
	f := command.Flags()
	f.StringVar(&o.Addr, "addr", "127.0.0.1:8123", "where to listen")
	f.StringVar(&o.DataDir, "data", ".data/clickhouse", "folder of the tables; one engine at a time has it")
	f.StringVar(&o.Library, "library", "", "path of libchdb (default: $"+libchdb.PathVariable+", else the installed one)")
	f.IntVar(&o.MaxQueries, "max-queries", 32, "statements that run at once; further ones wait up to 10 s")
	f.Int64Var(&bodyMiB, "max-body", 1024, "largest body of a request, in MiB after decompression")
	f.DurationVar(&o.Grace, "grace", 15*time.Second, "how long statements may go on after SIGTERM")
	f.BoolVar(&o.TrustNetwork, "trust-network", false, "allow an address that other machines reach")
	f.BoolVar(&o.DieWithParent, "die-with-parent", false, "stop when the process that started this one has gone")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&format, "log-format", "text", "text or json")
	command.AddCommand(newInstallCommand())
	return command
}

// newInstallCommand is `reporting engine install`.
func newInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "Fetch the engine's library with npm, unless it is there",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := libchdb.Install(c.Context(), c.ErrOrStderr())
			return err
		},
	}
}
