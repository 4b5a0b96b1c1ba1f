package main

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/auth/authenv"
)

// monthEnv is an environment with a running panel that knows authenv's people.
type monthEnv struct {
	*archiveenv.System
	t         *testing.T
	variables []string // of commands
}

func newMonthEnv(t *testing.T) *monthEnv {
	t.Helper()
	e := &monthEnv{System: archiveenv.New(t), t: t}
	var lines []string
	for _, user := range authenv.People().Users {
		lines = append(lines, user.Line())
	}

	panelAddr, opsAddr := freeAddr(t), freeAddr(t)
	e.variables = append(variables(e.System), "PANEL_ADDR="+panelAddr, "REPORTING_OPS_ADDR="+opsAddr)

	panel := program(t, append(e.variables, "PANEL_USERS="+strings.Join(lines, "\n")), "serve", "--roles", "panel", "--config", settingsFile(t))
	testenv.Must(t, panel.Start())
	awaitAnswer(t, "http://"+opsAddr+"/readyz", "200")
	e.KeepConsuming(ledger.RoleExport) // however long a decision takes, the exporter is not behind

	return e
}

// month runs `reporting month` with a password typed, and wants it to say something.
func (e *monthEnv) month(password, says string, works bool, args ...string) {
	e.t.Helper()
	e.AwaitSettled(ledger.RoleExport)
	args = append([]string{"month"}, append(args, "--config", settingsFile(e.t))...)
	cmd := program(e.t, e.variables, args...)
	cmd.Stdin = strings.NewReader(password + "\n")

	out, err := cmd.CombinedOutput()

	if (err == nil) != works || !strings.Contains(string(out), says) {
		e.t.Errorf("%v: %v, want %q in\n%s", args, err, says, out)
	}
}

// Only the running panel knows who may decide what: what stands in the caller's own PANEL_USERS makes
// nobody a second person.
func TestMonth_ThePanelDecidesWhoMayDecide(t *testing.T) {
	t.Parallel()

	e := newMonthEnv(t)
	own := authenv.People().Users[0].Line()
	forged := "mallory" + own[strings.Index(own, ":"):]
	e.variables = append(e.variables, "PANEL_USERS="+forged)

	e.month("not the password", "refuses the user or the password", false, "hold", "2026-10", "--user", "cem", "--note", "x")
	e.month(authenv.Password, "refuses the user or the password", false, "hold", "2026-10", "--user", "mallory", "--note", "x")
	e.month(authenv.Password, "needs the role closer", false, "hold", "2026-10", "--user", "ayse", "--note", "x")
	e.month(authenv.Password, "not a month", false, "hold", "2026-13", "--user", "cem")
	e.month(authenv.Password, "a note is needed", false, "hold", "2026-10", "--user", "cem")
	e.month("", "October 2026: open", true, "status", "2026-10")
	e.month(authenv.Password, "hold of October 2026 by cem, entry 1", true, "hold", "2026-10", "--user", "cem", "--note", "seen")
	e.month("", "October 2026: held by cem", true, "status", "2026-10")
	e.month(authenv.Password, "cem has held October 2026, so somebody else has to close it", false, "close", "2026-10", "--user", "cem")
	e.month(authenv.Password, "close of October 2026 by defne, entry 2", true, "close", "2026-10", "--user", "defne")
	e.month(authenv.Password, "October 2026 is closed", false, "release", "2026-10", "--user", "cem")
	e.month(authenv.Password, "every row belongs to the log", false, "dispute", "--user", "cem", "--note", "x")
	e.month("", "the books are what they were: 1 closings", true, "verify")
}

func TestMonth_WithoutAPanelNothingIsDecided(t *testing.T) {
	t.Parallel()
	e := &monthEnv{System: archiveenv.New(t), t: t}
	e.variables = append(variables(e.System), "PANEL_ADDR="+freeAddr(t))

	e.month(authenv.Password, "the panel, which decides about months, does not answer", false, "hold", "2026-10", "--user", "cem", "--note", "x")
}

// Without the keys nothing can be signed or believed.
func TestMonth_NeedsTheKeysOfTheBooks(t *testing.T) {
	t.Parallel()
	e := newMonthEnv(t)
	e.month(authenv.Password, "hold of October 2026", true, "hold", "2026-10", "--user", "cem", "--note", "seen")

	e.variables = append(e.variables, "BOOKS_KEYS=")
	e.month("", "BOOKS_KEYS is not set", false, "verify")
	e.month("", "BOOKS_KEYS is not set", false, "status")
}

// What a person decides with the command is in the audit trail, as from the panel.
func TestMonth_DecisionsAreAudited(t *testing.T) {
	t.Parallel()

	e := newMonthEnv(t)
	order := "018f0000-0000-8000-8000-000000000000"
	e.month(authenv.Password, "a note is needed", false, "hold", "2026-10", "--user", "cem")
	e.month(authenv.Password, "hold of October 2026", true, "hold", "2026-10", "--user", "cem", "--note", "seen")
	e.month(authenv.Password, "close of October 2026", true, "close", "2026-10", "--user", "defne")
	e.month(authenv.Password, "nothing to correct", true, "correct", "--order", order, "--user", "defne", "--note", "told")

	latest := map[string]*audit.Entry{}
	var ids []string
	testenv.Must(t, e.Ledger.Streams.EachEntry(t.Context(), ledger.RoleExport, time.Time{}, func(batch []partitions.Entry) error {
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

	want := `cem|session|month held|{"month":"2026-10"}|REFUSED
cem|session|month held|{"month":"2026-10","note":"seen"}|
defne|session|month closed|{"month":"2026-10"}|
defne|session|corrections booked|{"note":"told","orders":["` + order + `"]}|
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
