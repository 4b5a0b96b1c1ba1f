package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// withHistory opens ClickHouse for a command that reads there and nowhere else. It checks that the database is
// this environment's ledger's, with nothing missing there, and lets booked reports compare the books with the
// head of their log. While Redis does not answer it goes on, and says what is not checked.
func withHistory(c *cobra.Command, work func(ctx context.Context, a *archive.Archive) error) (err error) {
	ctx := c.Context()
	s, err := loadSettings(c)
	if err != nil {
		return err
	}
	a, err := archive.Open(s.ClickHouse)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }() // only read

	l, err := s.openLedger(ctx, s.Log.Logger(c.ErrOrStderr()))
	if errors.Is(err, delivery.ErrUnavailable) {
		fmt.Fprintf(c.ErrOrStderr(), withoutRedis, s.Environment, err)
		if err := a.CheckEnvironment(ctx, s.Environment); err != nil {
			return err
		}
		return work(ctx, a)
	}

	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // only read

	a.UseHead(l.Books.Head)
	if err := checkHistory(ctx, l, a); err != nil {
		return err
	}

	return work(ctx, a)
}

const withoutRedis = "Redis does not answer. Checked is only that the database belongs to %s, and that the books' log has no gap and no foreign rows; " +
	"not to which ledger the database belongs, and not whether the log's last entries are there: %v\n"

type reportOptions struct {
	values reports.Values
	format string
	output string
}

func newReportCommand() *cobra.Command {
	var o reportOptions
	c := newCommand("report [NAME]", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return listReports(c.OutOrStdout())
		}

		r, found := reports.Find(args[0])
		if !found {
			return fmt.Errorf("there is no report %q; there are %s", args[0], strings.Join(reports.Names(), ", "))
		}
		return o.run(c, r)
	})

	f := c.Flags()
	f.StringVar(&o.values.From, "from", "", "first day, 2026-11-01 (default: the first of the month of --to)")
	f.StringVar(&o.values.To, "to", "", "last day, 2026-11-30 (default: today)")
	f.StringVar(&o.values.Account, "account", "", "only this account (id)")
	f.StringVar(&o.values.Fleet, "fleet", "", "only this fleet (id)")
	f.StringVar(&o.values.Store, "store", "", "only stores that the vendor calls so (externalStoreId)")
	f.StringVar(&o.values.Basis, "basis", "", "booked: closed months as they were closed, corrections where they were booked; known: as orders say now (default: booked)")
	f.StringVar(&o.values.AsOf, "as-of", "", "closed months as of the end of this day")
	f.StringVar(&o.format, "format", "", "table, csv, csv-comma, csv-plain, xlsx or json (default: by the file's extension; table on a terminal, else csv)")
	f.StringVarP(&o.output, "output", "o", "", "the file to write (default: standard output)")
	addConfigFlag(c)

	return c
}

func listReports(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range reports.All() {
		fmt.Fprintf(t, "%s\t%s; the period means %s\n", r.Name, r.Title, r.Day)
		fmt.Fprintf(t, "\t%s\n", strings.Join(strings.Fields(r.Keys), ", "))
		if views := r.FinanceViews(); len(views) > 0 {
			fmt.Fprintf(t, "\tin SQL, in the database %s: %s\n", archive.FinanceDatabase(archive.DefaultDatabase), strings.Join(views, ", "))
		}
		fmt.Fprintf(t, "\t\n")
	}

	return t.Flush()
}

func (o *reportOptions) run(c *cobra.Command, r *reports.Report) error {
	p, err := o.values.Parse(time.Now())
	if err != nil {
		return explainFlags(err)
	}
	format, err := o.chooseFormat(c.OutOrStdout())
	if err != nil {
		return err
	}

	err = withHistory(c, func(ctx context.Context, a *archive.Archive) error {
		progress, done := showProgress(c.ErrOrStderr(), r.Name, o.output == "" && terminal(c.OutOrStdout()))
		write := func(w io.Writer) error {
			_, err := r.Run(ctx, a, p, format.Sink(w), progress)
			done()
			return err
		}
		if o.output == "" {
			return write(c.OutOrStdout())
		}

		return writeFile(o.output, write)
	})

	ended := c.Context().Err() != nil
	switch {
	case err == nil:
		return nil
	case ended && o.output != "":
		return fmt.Errorf("interrupted, %s was not written", o.output)
	case ended:
		return errors.New("interrupted, the report is not complete")
	case errors.Is(err, delivery.ErrUnavailable):
		return fmt.Errorf("%w\nIs ClickHouse there? clickhouse.url ($CLICKHOUSE_URL) says where; `go run ./internal/devclickhouse` starts the embedded one", err)
	}

	return explainFlags(err)
}

// explainFlags names the flags where parameters are wrong.
func explainFlags(err error) error {
	var wrong reports.ParamErrors
	if !errors.As(err, &wrong) {
		return err
	}

	err = nil
	for _, w := range wrong {
		err = errors.Join(err, fmt.Errorf("--%s: %s", strings.ReplaceAll(w.Field, "_", "-"), w.Message))
	}
	return err
}

// chooseFormat is the flag's, the file's or the one that suits standard output.
func (o *reportOptions) chooseFormat(stdout io.Writer) (*reports.Format, error) {
	shown := o.output == "" && terminal(stdout)
	byExtension, known := reports.FormatOf(filepath.Ext(o.output))
	switch {
	case o.format == reports.XLSX.Name && shown:
		return nil, errors.New("xlsx is not for terminals: give a file with -o")
	case o.format != "":
		return reports.ParseFormat(o.format)
	case known:
		return byExtension, nil
	case o.output != "":
		return nil, fmt.Errorf("%s: the extension is none of .csv, .xlsx, .json and .txt; give --format", o.output)
	case shown:
		return reports.Table, nil
	}

	return reports.CSV, nil
}

// writeFile lets write fill a file that appears under its name only when it is whole. What
// is no regular file, such as /dev/null or a pipe, is written to directly.
func writeFile(name string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}

	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return fmt.Errorf("%s is a folder", name)
		}

		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()

		return write(f)
	}

	f, err := os.OpenFile(fmt.Sprintf("%s.partial-%d", name, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}

	err = write(f)
	if err == nil {
		err = f.Sync()
	}

	err = cmp.Or(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}

	if err != nil {
		_ = os.Remove(f.Name()) // the error that is returned is the one that matters
	}

	return err
}

// showProgress draws on a terminal how many rows have been read, unless it is busy with
// the report.
func showProgress(stderr io.Writer, name string, busy bool) (progress reports.Progress, done func()) {
	if busy || !terminal(stderr) {
		return nil, func() {}
	}

	bar := progressbar.NewOptions64(-1,
		progressbar.OptionSetDescription(name),
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("rows"),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0), // it would draw from a goroutine of its own, without a lock
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)

	return func(rows int64) { _ = bar.Set64(rows) }, func() { _ = bar.Finish() }
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// auditFlags are the parameters of archive.AuditSearch.
var auditFlags = map[string]string{
	"from":   "first local day, 2026-11-01 (default: 30 days with --to)",
	"to":     "last local day (default: today)",
	"actor":  "only of this user, key or client",
	"action": "only this action, such as 'account changed'",
	"about":  "only about this account, fleet or order (id)",
}

func newAuditCommand() *cobra.Command {
	var limit uint32
	c := newCommand("audit", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		s := url.Values{}
		for name := range auditFlags {
			s.Set(name, c.Flag(name).Value.String())
		}

		if wrong := reports.ParamErrors(archive.AuditSearch(s, time.Now())); len(wrong) > 0 {
			return explainFlags(wrong)
		}

		return withHistory(c, func(ctx context.Context, a *archive.Archive) error {
			found, err := a.AuditEntries(ctx, s, int(limit))
			if err != nil {
				return err
			}

			if len(found) == int(limit) {
				fmt.Fprintf(c.ErrOrStderr(), "only the newest %d are shown; narrow the search, or give a higher --limit\n", limit)
			}
			return writeAudit(c.OutOrStdout(), found)
		})
	})

	f := c.Flags()
	for name, usage := range auditFlags {
		f.String(name, "", usage)
	}

	f.Uint32Var(&limit, "limit", 1000, "how many entries at most, the newest")
	addConfigFlag(c)

	return c
}

func writeAudit(w io.Writer, found []audit.Entry) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tACTOR\tBY\tADDRESS\tACTION\tABOUT\tOUTCOME\tREQUEST\tFROM\tTO")
	for _, e := range found {
		about := fmt.Sprintf("account %s fleet %s order %s store %s", e.Account, e.Fleet, e.Order, e.Store)
		about = strings.TrimSpace(absent.ReplaceAllString(about, ""))
		row := []string{delivery.FormatTime(e.At), e.Actor, e.Credential, e.Address, e.Action, about, cmp.Or(e.Outcome, "done"), e.RequestID, e.Old, e.New}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// absent is what an entry is not about.
var absent = regexp.MustCompile(`(account|fleet|order) 00000000-0000-0000-0000-000000000000 |store $`)
