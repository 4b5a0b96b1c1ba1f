package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/reporting/backup"
)

func newBackupCommand() *cobra.Command {
	var o backup.Options
	var withoutHistory bool
	c := newSettingsCommand("backup --to FOLDER", func(c *cobra.Command) error {
		began, out := time.Now(), c.OutOrStdout()
		o.Progress = func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }
		return withStores(c, true, !withoutHistory, func(ctx context.Context, s stores) error {
			m, err := backup.Make(ctx, s.ledger, s.archive, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "backup %s of everything acknowledged before %s is whole, after %.1f s: %s\n",
				m.ID, m.Began.Format(time.RFC3339), time.Since(began).Seconds(), o.To)
			if len(m.Included) == 0 {
				fmt.Fprintln(out, "it holds no keys: keep WEBHOOK_KEYS, TOKEN_KEYS, TRACKING_KEYS and ADMIN_KEY elsewhere")
			}
			return nil
		})
	})
	f := c.Flags()
	f.StringVar(&o.To, "to", "", "the folder to make")
	f.StringArrayVar(&o.Include, "include", nil, "a further file or folder to copy, such as the keys; may be repeated")
	f.BoolVar(&withoutHistory, "without-history", false, "leave ClickHouse out: it has a backup of its own")
	requireFlag(c, "to")
	return c
}

func newRestoreCommand() *cobra.Command {
	var r restore
	c := newSettingsCommand("restore --from FOLDER", r.run)
	f := c.Flags()
	f.StringVar(&r.from, "from", "", "the backup's folder")
	f.BoolVar(&r.check, "check", false, "check the sums of the folder, and do nothing")
	f.StringVar(&r.redisDir, "redis-dir", "", "data folder of a Redis that does not run")
	f.IntVar(&r.node, "node", 0, "which master's snapshot goes into --redis-dir, from 0")
	f.StringVar(&r.includedDir, "included-dir", "", "where to put the included files")
	f.BoolVar(&r.merge, "merge", false, "load although ClickHouse has rows: to go on after an interruption")
	f.BoolVar(&r.withoutHistory, "without-history", false, "leave ClickHouse as it is: it has survived, or was restored by other means")
	requireFlag(c, "from")
	c.MarkFlagsMutuallyExclusive("check", "redis-dir")
	return c
}

// restore is what the flags of the command say.
type restore struct {
	from, redisDir, includedDir  string
	node                         int
	check, merge, withoutHistory bool
}

func (r *restore) run(c *cobra.Command) error {
	m, err := backup.Open(r.from)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	if r.check {
		fmt.Fprintf(out, "backup %s is whole: everything acknowledged before %s\n", m.ID, m.Began.Format(time.RFC3339))
		return nil
	}
	if r.includedDir != "" {
		if err := m.PlaceIncluded(r.from, r.includedDir); err != nil {
			return err
		}
		fmt.Fprintf(out, "put %d included files below %s\n", len(m.Included), r.includedDir)
	}
	if r.redisDir != "" {
		if err := m.PlaceRedis(r.from, r.node, r.redisDir); err != nil {
			return err
		}
		fmt.Fprintf(out, "put the snapshot of %s into %s; start Redis there, then: reporting restore --from %s\n",
			m.Redis[r.node].Addr, filepath.Clean(r.redisDir), r.from)
	}
	if r.redisDir != "" || r.includedDir != "" {
		return nil
	}
	return withStores(c, true, !r.withoutHistory && len(m.Tables) > 0, func(ctx context.Context, s stores) error {
		resumed, err := m.Finish(ctx, r.from, s.ledger, s.archive, r.merge, func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) })
		if err != nil {
			return err
		}
		if resumed.Before {
			fmt.Fprintln(out, "Redis had been made fit to go on before; nothing was changed there")
			return nil
		}
		fmt.Fprintf(out, `restored everything acknowledged before %s
the exporter was set back in %d streams, the epoch is %d, %d sessions of the panel were ended
start the programs, and then: reporting reconcile
`, m.Began.Format(time.RFC3339), resumed.Streams, resumed.Epoch, resumed.Sessions)
		return nil
	})
}
