package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

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
	var source archive.Settings // a command that only reads needs no settings file
	c := newCommand("audit", cobra.NoArgs, func(c *cobra.Command, _ []string) (err error) {
		s := url.Values{}
		for name := range auditFlags {
			s.Set(name, c.Flag(name).Value.String())
		}
		for _, wrong := range archive.AuditSearch(s, time.Now()) {
			err = errors.Join(err, fmt.Errorf("--%s: %s", wrong.Field, wrong.Message))
		}
		if err != nil {
			return err
		}
		source.URL = cmp.Or(source.URL, os.Getenv(clickHouseVariable), embeddedEngine)
		a, err := archive.Open(source)
		if err != nil {
			return err
		}
		defer func() { _ = a.Close() }() // only read
		found, err := a.AuditEntries(c.Context(), s, int(limit))
		if err != nil {
			return err
		}
		if len(found) == int(limit) {
			fmt.Fprintf(c.ErrOrStderr(), "only the newest %d are shown; narrow the search, or give a higher --limit\n", limit)
		}
		return writeAudit(c.OutOrStdout(), found)
	})
	f := c.Flags()
	for name, usage := range auditFlags {
		f.String(name, "", usage)
	}
	f.Uint32Var(&limit, "limit", 1000, "how many entries at most, the newest")
	f.StringVar(&source.URL, clickHouseFlag, "", "where ClickHouse is (default: $"+clickHouseVariable+", else "+embeddedEngine+")")
	f.StringVar(&source.Database, "database", archive.DefaultDatabase, "its database")
	return c
}

func writeAudit(w io.Writer, found []ledger.AuditEntry) error {
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
