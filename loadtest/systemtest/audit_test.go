package systemtest

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv"
)

const ayseKey = "adm_the-key-that-only-ayse-has"

// ayseKeyLine lets her key in, as ADMIN_KEYS.
func ayseKeyLine() string {
	return fmt.Sprintf("ADMIN_KEYS=ayse:sha256:%x", sha256.Sum256([]byte(ayseKey)))
}

// What an operator does with a key of her own, in the panel, and with a wrong key is found by the
// command and on the page, without secrets and recipients.
func testAudit(t *testing.T, s *scenario) {
	admin := s.Demo.OpsURL + "/api/admin/v1"
	account := "/accounts/" + s.v.AccountID
	succeeds(t, client.New("", 1).As(admin, ayseKey), http.MethodPatch, account,
		map[string]any{"limits": map[string]any{"token": map[string]any{"sustained": map[string]int{"count": 61, "seconds": 3600}}}}, nil)
	if err := client.New("", 1).As(admin, ayseKey+"x").Call(t.Context(), http.MethodGet, "/accounts", nil, nil); err == nil {
		t.Error("a wrong key opens the admin API")
	}

	metrics := testenv.NewClient(t, s.Demo.OpsURL).Get("/metrics").Text
	if !regexp.MustCompile(`(?m)^gateway_admin_key_failures_total [1-9]`).MatchString(metrics) {
		t.Error("the wrong key is not counted")
	}

	succeeds(t, s.v.Client, http.MethodPut, "/webhook", map[string]string{"url": s.v.url + "?hidden=1"}, nil)

	browser := testenv.NewClient(t, s.Demo.PanelURL, testenv.AcceptHTML)
	browser.Post("/login", url.Values{"user": {s.Demo.Panel.User}, "password": {s.Demo.Panel.Password}}).Want(http.StatusSeeOther)
	order := s.order(t, "Cash", "10.00")
	browser.Page("/orders/" + order).Says("Recipient Personal data")
	s.cancel(t, order)
	s.notified(t, order, "Cancelled")
	form := browser.Page(account).Form(account+"/name", "", "")
	form.Set("name", "Başka bir ad")
	browser.Post(account+"/name", form).Want(http.StatusSeeOther)

	search := func(args ...string) string { t.Helper(); return s.searchAudit(t, args...) }
	var all string
	await(t, "the entries are in ClickHouse", func() bool {
		all = search("--about", s.v.AccountID)
		return strings.Contains(all, "recipient viewed account "+s.v.AccountID+" order "+order) && strings.Contains(all, "Başka bir ad")
	})

	for _, entry := range []string{
		` ayse admin key 127.0.0.1 account changed account ` + s.v.AccountID +
			` done {"limits":{"token":{"sustained":{"count":60}}}} {"limits":{"token":{"sustained":{"count":61}}}} `,
		" " + s.Demo.Panel.User + " session 127.0.0.1 recipient viewed account " + s.v.AccountID + " order " + order + " done ",
		" " + s.Demo.Panel.User + " ADMIN_KEY 127.0.0.1 account changed account " + s.v.AccountID + ` done {"name":`,
	} {
		if !strings.Contains(all, entry) {
			t.Errorf("lacking: %s\nin %s", entry, all)
		}
	}

	receiver := regexp.QuoteMeta(strings.TrimSuffix(s.v.url, "/"))
	registered := regexp.MustCompile(` token 127\.0\.0\.1 webhook registered account ` + s.v.AccountID +
		` done \{"sha256":"[0-9a-f]{8}…","url":"` + receiver + `"\} \{"sha256":"[0-9a-f]{8}…","url":"` + receiver + `/…"\} `)
	if !registered.MatchString(all) {
		t.Errorf("lacking: %s\nin %s", registered, all)
	}
	if of := search("--actor", "ayse"); strings.Count(of, "account changed") != 1 || strings.Contains(of, "recipient viewed") {
		t.Errorf("of ayse: %s", of)
	}

	browser.Page("/audit?about="+order).Says("recipient viewed", s.Demo.Panel.User+" by session").Hides("account changed")
	everything := search()
	for _, secret := range []string{ayseKey, s.Demo.AdminKey, s.Demo.Panel.Password, s.Demo.ReportsToken, s.v.ClientSecret, s.v.secret, "hidden",
		s.Demo.Account.ClientSecret, s.Demo.Fleet.ClientSecret, "vas_", "fls_", "whsec_", "Ayşe", "5321234567", "Bahariye"} {
		if secret == "" || strings.Contains(everything, secret) {
			t.Errorf("%q is in the audit trail", secret)
		}
	}
}

// testAuditAfterwards is after a restart without the line of the key: the gateway has noted the
// wrong key when it stopped, and hers opens nothing any more.
func testAuditAfterwards(t *testing.T, s *scenario) {
	if err := client.New("", 1).As(s.Demo.OpsURL+"/api/admin/v1", ayseKey).Call(t.Context(), http.MethodGet, "/accounts", nil, nil); err == nil {
		t.Error("a key whose line is gone opens the admin API")
	}
	await(t, "the wrong key is on record", func() bool {
		return strings.Contains(s.searchAudit(t, "--action", "admin key refused"), ` 127.0.0.1 admin key refused TOKEN_INVALID {"count":1}`)
	})
}

// searchAudit is what `reporting audit` prints, with single blanks and without the requests' ids.
func (s *scenario) searchAudit(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Command(t, stack.ReportingUser, append([]string{"audit"}, args...)...)
	must(t, err)
	return requestID.ReplaceAllString(strings.Join(strings.Fields(out), " "), " ")
}

var requestID = regexp.MustCompile(" [0-9a-f]{16} ")
