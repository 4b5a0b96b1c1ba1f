package main

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/panelenv"
)

// What a person decides with the command is in the audit trail, as from the panel.
func TestMonth_DecisionsAreAudited(t *testing.T) {
	t.Parallel()
	e := testenv.NewArchive(t)
	var lines []string
	for _, user := range panelenv.People().Users {
		lines = append(lines, user.Line())
	}
	run := func(password, says string, works bool, args ...string) {
		t.Helper()
		e.Consume(ledger.RoleExport)
		args = append([]string{"month"}, append(args, "--config", settingsFile(t))...)
		cmd := program(t, append(variables(e), "PANEL_USERS="+strings.Join(lines, "\n")), args...)
		cmd.Stdin = strings.NewReader(password + "\n")
		out, err := cmd.CombinedOutput()
		if (err == nil) != works || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v, want %q in\n%s", args, err, says, out)
		}
	}
	run("not the password", "password", false, "hold", "2026-10", "--user", "cem", "--note", "x")
	run(panelenv.Password, "closer", false, "hold", "2026-10", "--user", "ayse", "--note", "x")
	run(panelenv.Password, "without a note", false, "hold", "2026-10", "--user", "cem")
	run(panelenv.Password, "hold of October 2026 by cem", true, "hold", "2026-10", "--user", "cem", "--note", "seen")
	run(panelenv.Password, "close of October 2026 by defne", true, "close", "2026-10", "--user", "defne")
	order := "018f0000-0000-8000-8000-000000000000"
	run(panelenv.Password, "nothing to correct", true, "correct", "--order", order, "--user", "defne", "--note", "told")
	latest := map[string]*ledger.AuditEntry{}
	var ids []string
	testenv.Must(t, e.Ledger.Streams.EachEntry(t.Context(), ledger.RoleExport, time.Time{}, func(batch []ledger.Entry) error {
		for _, one := range batch {
			if one.Audit == nil {
				continue
			}
			if latest[one.Audit.ID] == nil {
				ids = append(ids, one.Audit.ID)
			}
			latest[one.Audit.ID] = one.Audit
		}
		return nil
	}))
	got := ""
	for _, id := range ids {
		a := latest[id]
		got += strings.Join([]string{a.Actor, a.Credential, a.Action, a.New, a.Outcome}, "|") + "\n"
	}
	if want := `cem|reporting month|month held|{"month":"2026-10"}|REFUSED
cem|reporting month|month held|{"month":"2026-10","note":"seen"}|
defne|reporting month|month closed|{"month":"2026-10"}|
`; !strings.HasPrefix(got, want) || !strings.Contains(got, `corrections booked|{"month":"`) || !strings.Contains(got, `"note":"told","orders":["`+order+`"]}|`) || strings.Count(got, "\n") != 4 {
		t.Error(got)
	}
}
