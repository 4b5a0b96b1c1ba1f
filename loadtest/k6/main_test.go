package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func TestOriginOf(t *testing.T) {
	t.Parallel()

	for given, want := range map[string]string{
		"https://api.example.com":                      "https://api.example.com",
		"https://api.example.com/":                     "https://api.example.com",
		" https://api.example.com/api/vendor/v1/ ":     "https://api.example.com",
		"https://api.example.com/api/vendor/v1/orders": "https://api.example.com",
		"https://api.example.com/prefix/api/vendor/v1": "https://api.example.com/prefix",
		"api.example.com":                              "https://api.example.com",
		"localhost:8080":                               "http://localhost:8080",
		"127.0.0.1:8080/":                              "http://127.0.0.1:8080",
		"gateway:8080":                                 "http://gateway:8080",
		"172.16.0.9":                                   "http://172.16.0.9",
		"localhost.example.com":                        "https://localhost.example.com",
		"10.example.com/":                              "https://10.example.com",
		"[::1]:8080":                                   "http://[::1]:8080",
	} {
		origin, err := originOf(given)

		if err != nil || origin != want {
			t.Errorf("%q: %q, %v; want %q", given, origin, err, want)
		}
	}
}

func TestOriginOf_Refuses(t *testing.T) {
	t.Parallel()

	for _, given := range []string{
		"ftp://api.example.com", "https://user:secret@api.example.com", "https://api.example.com/?key=secret",
		"https://api.example.com/#top", "https://", "htp:/127.0.0.1", "https://api.example.com:", "https://api example.com",
	} {
		origin, err := originOf(given)

		if err == nil {
			t.Errorf("%q is %q", given, origin)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows a secret: %v", given, err)
		}
	}
}

func TestReadAccounts(t *testing.T) {
	t.Parallel()

	const text = `[{"clientId": "ven_1", "clientSecret": "s1"},
		{"accountId": "a2", "clientId": "ven_2", "clientSecret": "s2", "limits": {"orders": {"sustained": {"count": 7200, "seconds": 60}}}}]`

	accounts, err := readAccounts([]byte(text))

	if err != nil || len(accounts) != 2 {
		t.Fatalf("%+v, %v", accounts, err)
	}
	if got := accounts[0].Limits.burstOrders(); got != 120 {
		t.Errorf("an account without limits may send %d orders at once, want the contract's 120", got)
	}
	if got := accounts[1].Limits.forResults().Orders; got.Burst.Count != 7200 || got.Sustained.Count != 7200 {
		t.Errorf("without a burst the other window holds alone: %+v", got)
	}
}

func TestReadAccounts_Refuses(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		``, `{}`, `[]`, `[1]`, `null`, `[{"clientId": "ven_1"}]`, `[{"clientSecret": "geheim"}]`,
		`[{"clientId": "ven_1", "clientSecret": "geheim"}, {"clientId": "ven_2"}]`, `[{"clientId": "ven_1", "clientSecret": "geheim"}`,
	} {
		_, err := readAccounts([]byte(text))

		if err == nil {
			t.Errorf("%s was taken", text)
		} else if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: the error shows a secret: %v", text, err)
		}
	}
}

func TestAccountsFile_OnlyItsOwnerReadsIt(t *testing.T) {
	t.Parallel()

	file := &accountsFile{path: filepath.Join(t.TempDir(), "accounts.json")}
	file.accounts = []accountRecord{{AccountID: "a1", ClientID: "ven_1", ClientSecret: "s1", Limits: raisedLimits(300), Before: contractLimits()}}

	if err := file.write(); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(file.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	again, err := readAccountsFile(file.path)
	if err != nil || again.accounts[0].Limits.burstOrders() != 300 || again.accounts[0].Before.burstOrders() != 120 {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestMissingFor_SaysWhatADeploymentDoesNotGive(t *testing.T) {
	t.Parallel()

	plain := &deployment{accounts: []*account{{accountRecord: accountRecord{Limits: contractLimits()}}}}
	raised := &deployment{accounts: []*account{{accountRecord: accountRecord{Limits: raisedLimits(1200)}}}, hasFleet: true}
	mixed := &deployment{accounts: slices.Concat(raised.accounts, plain.accounts)}
	for _, c := range []struct {
		deployment *deployment
		script     script
		missing    string
	}{
		{plain, script{name: "steady"}, ""},
		{plain, script{name: "burst"}, ""},
		{plain, script{name: "ramp", needs: needs{Orders: 1200}}, "raised limits"},
		{plain, script{name: "mixed", needs: needs{Fleet: true}}, "a fleet"},
		{plain, script{name: "failover", needs: needs{Outages: true}}, "makes the system fail"},
		{raised, script{name: "ramp", needs: needs{Orders: 1200}}, ""},
		{raised, script{name: "mixed", needs: needs{Fleet: true}}, ""},
		{raised, script{name: "burst"}, "the contract's limits"},
		{mixed, script{name: "burst"}, "the contract's limits"},
		{mixed, script{name: "ramp", needs: needs{Orders: 1200}}, "raised limits"},
	} {
		missing := c.deployment.missingFor(&c.script)

		if (c.missing == "") != (missing == "") || !strings.Contains(missing, c.missing) {
			t.Errorf("%s: missing %q, want %q", c.script.name, missing, c.missing)
		}
	}
}

func TestOtherThresholds_AreNamed(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "summary.json")
	const summary = `{"levels": [{"metric": "checks"}], "metrics": {
		"checks": {"thresholds": {"rate==1": {"ok": false}}},
		"vus": {"thresholds": {"value<5": {"ok": false}, "value>0": {"ok": true}}}}}`
	if err := os.WriteFile(path, []byte(summary), 0o600); err != nil {
		t.Fatal(err)
	}

	named := otherThresholds(path)

	if named != "k6's thresholds were crossed: value<5 of vus" {
		t.Error(named)
	}
}

func TestFilesToCheck_SortsThemAndMissesNone(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	var paths []string
	for _, name := range []string{"1.samples.json.gz", "2.samples.json", "1.summary.json"} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}

	files, err := filesToCheck(folder, paths)

	if err != nil || len(files.Samples) != 2 || len(files.Summaries) != 1 || files.Folder != folder {
		t.Errorf("%+v, %v", files, err)
	}
	if _, err := filesToCheck(folder, []string{filepath.Join(folder, "none.json")}); err == nil {
		t.Error("a file that does not exist was taken")
	}
}

func TestAccountsIn_ShowsNoSecretOfWhatIsNoFile(t *testing.T) {
	t.Parallel()

	for _, given := range []string{`{"clientId": "ven_1", "clientSecret": "geheim"}`, "ven_1:geheim", `"geheim"`} {
		_, err := accountsIn(given)

		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", given, err)
		}
	}
}

func TestAccountChanges_WantAFileOfAccounts(t *testing.T) {
	t.Setenv("ACCOUNTS", `[{"clientId": "ven_1", "clientSecret": "geheim"}]`)

	err := prepareAccounts(t.Context(), []string{"-count", "1"})

	if err == nil || !strings.Contains(err.Error(), "name the file") || strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
}

func TestAccountChanges_OfAMisspeltFileAreAnError(t *testing.T) {
	t.Setenv("OPS_URL", "http://127.0.0.1:1")
	t.Setenv("ADMIN_KEY", "geheim")
	for _, change := range []string{"-restore", "-suspend", "-orders=500"} {
		err := prepareAccounts(t.Context(), []string{"-file", filepath.Join(t.TempDir(), "misspelt.json"), change})

		if err == nil || !strings.Contains(err.Error(), "there is no file") {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestAttemptLog_FindsGaps(t *testing.T) {
	t.Parallel()

	list := func(from, to int) (listed []attempt) { // newest first
		for i := to; i >= from; i-- {
			listed = append(listed, attempt{EventID: fmt.Sprintf("evt_%d", i), Event: "delivery.status_changed", OrderID: "o1", Status: "delivered", Attempt: 1})
		}
		return listed
	}

	for name, c := range map[string]struct {
		looks [][]attempt
		gap   bool
		seen  int
	}{
		"each reaches back":          {[][]attempt{list(1, 3), list(2, 6)}, false, 6},
		"one does not":               {[][]attempt{list(1, 3), list(5, 9)}, true, 8},
		"a first one that is full":   {[][]attempt{list(1, 200)}, true, 200},
		"nothing new":                {[][]attempt{list(1, 3), list(1, 3)}, false, 3},
		"nothing at first":           {[][]attempt{nil, list(1, 3)}, false, 3},
		"the same attempt once more": {[][]attempt{list(1, 2), list(2, 2)}, false, 2},
	} {
		log := &attemptLog{delivered: map[string]map[string]bool{}}

		for _, listed := range c.looks {
			log.add(listed)
		}

		if log.hasGap != c.gap || len(log.delivered["o1"]) != c.seen {
			t.Errorf("%s: gap %v, %d events; want %v and %d", name, log.hasGap, len(log.delivered["o1"]), c.gap, c.seen)
		}
	}
}

func TestExceptionsIn_CountsThemAndShowsTheFirst(t *testing.T) {
	t.Parallel()

	log := filepath.Join(t.TempDir(), "k6.log")
	const text = `time="2026-11-29T14:12:18Z" level=warning msg="Insufficient VUs"
time="2026-11-29T14:12:19Z" level=error msg="Error: boom\n\tat default" executor=x scenario=one source=stacktrace
time="2026-11-29T14:12:20Z" level=error msg="Error: bang" executor=x scenario=one source=stacktrace
time="2026-11-29T14:12:21Z" level=error msg="thresholds on metrics 'checks' have been crossed"
`

	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	said := exceptionsIn(log)

	if !strings.HasPrefix(said, "the script threw 2 exceptions") || !strings.Contains(said, "boom") || strings.Contains(said, "bang") {
		t.Error(said)
	}
	if said := exceptionsIn(filepath.Join(t.TempDir(), "none.log")); said != "" {
		t.Error(said)
	}
}

func TestNewRunFolder_OfTheSameSecondIsAnother(t *testing.T) {
	t.Setenv("DATA_DIR", t.TempDir())
	now := time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC)

	var folders []string
	for range 3 {
		folder, err := newRunFolder(now)
		if err != nil {
			t.Fatal(err)
		}
		folders = append(folders, filepath.Base(folder))
	}

	if got := strings.Join(folders, " "); got != "20261129T140000Z 20261129T140000Z-2 20261129T140000Z-3" {
		t.Error(got)
	}

	all, err := runsFolder()
	if err != nil {
		t.Fatal(err)
	}
	if latest, err := os.Readlink(filepath.Join(all, "latest")); err != nil || latest != folders[2] {
		t.Errorf("latest is %s, %v", latest, err)
	}
}

func TestMayStoreCheck_KeepsTheResultOfARun(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	if err := mayStoreCheck(folder); err != nil {
		t.Error(err)
	}

	run := &results.Run{Target: checkedTarget}
	if err := run.WriteFile(filepath.Join(folder, resultFile)); err != nil {
		t.Fatal(err)
	}
	if err := mayStoreCheck(folder); err != nil {
		t.Errorf("an earlier check is kept: %v", err)
	}

	run.Target = results.OwnSystems
	if err := run.WriteFile(filepath.Join(folder, resultFile)); err != nil {
		t.Fatal(err)
	}
	if err := mayStoreCheck(folder); err == nil {
		t.Error("the result of a run would be lost")
	}
}

func TestAccount_LogsInAgainBeforeItsTokenExpires(t *testing.T) {
	t.Parallel()

	var used []string
	a := &account{label: "1", api: newVendorAPI(t, func(w http.ResponseWriter, r *http.Request) {
		used = append(used, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, `{"success": true, "data": {"status": "Delivered"}}`)
	})}

	for _, age := range []time.Duration{0, time.Minute, loginAgainAfter, 2 * time.Hour} {
		a.loggedInAt = a.loggedInAt.Add(-age) // as if so much time had passed
		h := receiver.History{OrderID: "o1"}
		if err := a.read(t.Context(), &h); err != nil || h.Status != "Delivered" {
			t.Errorf("after %v: %s, %v", age, h.Status, err)
		}
	}

	if got := strings.Join(used, ", "); got != "Bearer t1, Bearer t1, Bearer t2, Bearer t3" {
		t.Error(got)
	}
}

func TestPathOnPage_ShowsNoFolderOutsideTheProject(t *testing.T) {
	t.Parallel()

	p, err := newPlayer("", &options{duration: 1})
	if err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		filepath.Join(p.root, "loadtest", "steady.js"): "loadtest/steady.js",
		filepath.Join("testdata", "misspelt.js"):       "loadtest/k6/testdata/misspelt.js",
		filepath.Join(t.TempDir(), "mine.js"):          "mine.js",
	} {
		if got := p.pathOnPage(path); got != want {
			t.Errorf("%s is shown as %s, want %s", path, got, want)
		}
	}
}

func TestRefuseArguments_KnowsNoOtherCommand(t *testing.T) {
	t.Parallel()

	flags := newFlags("loadtest", "", "plays")
	if err := flags.Parse([]string{"chekc", "-fresh"}); err != nil {
		t.Fatal(err)
	}
	if err := refuseArguments(flags); err == nil || !strings.Contains(err.Error(), `"chekc"`) {
		t.Error(err)
	}

	err := prepareAccounts(t.Context(), []string{"-count", "1", "restore"})

	if err == nil || !strings.Contains(err.Error(), `"restore"`) {
		t.Error(err)
	}
}

// endsDuring are webhooks whose comparison ends only because ctx does.
type endsDuring struct {
	unchecked
	interrupt func()
}

func (e endsDuring) compare(ctx context.Context, _ []*account, _ *results.Script) (*results.Webhooks, error) {
	e.interrupt()
	return nil, context.Cause(ctx)
}

func TestCheckWebhooks_OfAnInterruptedScriptSaysWhatEndedIt(t *testing.T) {
	t.Parallel()

	cause := errors.New("gateway ended: exit status 2")
	orders := map[string][]results.Order{"1": {{ID: "o1", End: "Delivered"}}}
	for name, c := range map[string]struct {
		orders map[string][]results.Order
		isLate bool // it is interrupted while the webhooks are compared
	}{
		"before its first order":          {},
		"before its webhooks are awaited": {orders: orders},
		"while they are awaited":          {orders: orders, isLate: true},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		if !c.isLate {
			end(cause)
		}

		session := &session{webhooks: endsDuring{interrupt: func() { end(cause) }}}
		result := &results.Script{Orders: c.orders, Counts: results.Counts{Requests: 1}}
		p := &player{out: t.Output()}

		err := p.checkWebhooks(ctx, session, result)
		result.CollectFailures()

		if err != nil || result.Passed() || !strings.Contains(result.Interrupted, cause.Error()) {
			t.Errorf("%s: interrupted %q, failures %q, %v", name, result.Interrupted, result.Failures, err)
		}

		if w := result.Webhooks; w.How != results.WebhooksNotChecked || w.Why != "the script was interrupted" {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

func TestCheckWebhooks_OfAScriptWithoutOrders(t *testing.T) {
	t.Parallel()

	result := &results.Script{}
	p := &player{out: t.Output()}

	err := p.checkWebhooks(t.Context(), &session{}, result)

	if err != nil || result.Interrupted != "" || result.Webhooks.Why != "the script has created no order" {
		t.Errorf("%+v, interrupted %q, %v", result.Webhooks, result.Interrupted, err)
	}
}
