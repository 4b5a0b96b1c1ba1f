package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

type auditSettings struct {
	KeepDays int `yaml:"keep_days"`
}

// Validate names the key if its value is out of range.
func (s *auditSettings) Validate() error {
	if s.KeepDays < 0 || s.KeepDays > 36_500 {
		return errors.New("audit.keep_days: want 0 to 36500")
	}
	return nil
}

// auditDays are the days that are searched when none is named, today included; auditLimit is
// how many entries are shown of them.
const (
	auditDays  = 30
	auditLimit = 1000
)

func newAuditCommand() *cobra.Command {
	var s archive.AuditSearch
	var from, to string
	var asJSON bool
	var source archive.Settings // a command that only reads needs no settings file
	c := newCommand("audit", cobra.NoArgs, func(c *cobra.Command, _ []string) (err error) {
		s.To = archive.BusinessDay(time.Now())
		if to != "" {
			s.To, err = parseDay("to", to)
		}
		if s.From = s.To.AddDate(0, 0, 1-auditDays); err == nil && from != "" {
			s.From, err = parseDay("from", from)
		}
		switch _, id := delivery.ParseAccountID(s.About); {
		case err != nil:
			return err
		case s.From.After(s.To):
			return errors.New("--from: that is after --to")
		case s.About != "" && id != nil:
			return fmt.Errorf("--about: %q is not the id of an account, a fleet or an order, a UUID of 36 characters in lower case", s.About)
		case s.Limit < 1 || s.Limit > 1_000_000:
			return errors.New("--limit: want 1 to 1000000")
		}
		source.URL = cmp.Or(source.URL, os.Getenv(clickHouseVariable), embeddedEngine)
		a, err := archive.Open(source)
		if err != nil {
			return err
		}
		defer func() { _ = a.Close() }() // only read
		found, err := a.AuditEntries(c.Context(), s)
		if err != nil {
			return err
		}
		if len(found) == s.Limit {
			fmt.Fprintf(c.ErrOrStderr(), "only the newest %d are shown; narrow the search, or give a higher --limit\n", s.Limit)
		}
		if asJSON {
			return writeAuditJSON(c.OutOrStdout(), found)
		}
		return writeAudit(c.OutOrStdout(), found)
	})
	f := c.Flags()
	f.StringVar(&from, "from", "", fmt.Sprintf("first local day, 2026-11-01 (default: %d days up to --to)", auditDays))
	f.StringVar(&to, "to", "", "last local day (default: today)")
	f.StringVar(&s.Actor, "actor", "", "only of this user, key, account or client")
	f.StringVar(&s.Action, "action", "", "only this action, such as 'account changed'")
	f.StringVar(&s.About, "about", "", "only about this account, fleet or order (id)")
	f.StringVar(&s.Store, "store", "", "only about stores that the vendor calls so (externalStoreId)")
	f.StringVar(&s.Address, "address", "", "only from this address")
	f.IntVar(&s.Limit, "limit", auditLimit, "how many entries at most, the newest")
	f.BoolVar(&asJSON, "json", false, "one JSON object on each line, for programs")
	f.StringVar(&source.URL, clickHouseFlag, "", "where ClickHouse is (default: $"+clickHouseVariable+", else "+embeddedEngine+")")
	f.StringVar(&source.Database, "database", archive.DefaultDatabase, "its database")
	return c
}

func writeAudit(w io.Writer, found []archive.Audit) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tACTOR\tBY\tADDRESS\tACTION\tABOUT\tFROM\tTO\tOUTCOME\tREQUEST")
	for i := range found {
		e := &found[i]
		fmt.Fprintln(t, strings.Join([]string{delivery.FormatTime(e.At), cmp.Or(e.Actor, "-"), cmp.Or(e.Credential, "-"), e.Address, e.Action, e.About(),
			cmp.Or(e.Old, "-"), cmp.Or(e.New, "-"), cmp.Or(e.Outcome, "done"), cmp.Or(e.RequestID, "-")}, "\t"))
	}
	return t.Flush()
}

func writeAuditJSON(w io.Writer, found []archive.Audit) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for i := range found {
		e := &found[i]
		err := lines.Encode(map[string]any{"at": delivery.FormatTime(e.At), "id": e.ID, "actor": e.Actor, "credential": e.Credential, "address": e.Address,
			"requestId": e.RequestID, "action": e.Action, "about": e.About(), "old": json.RawMessage(cmp.Or(e.Old, "null")),
			"new": json.RawMessage(cmp.Or(e.New, "null")), "outcome": e.Outcome})
		if err != nil {
			return err
		}
	}
	return nil
}
