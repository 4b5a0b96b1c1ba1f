package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/layout"
)

// While a Redis server does not answer, the lists show what the others keep and name what is missing.
// Redis refuses what concerns one partition, which stands for it.
func TestLists_NameWhatAServerThatIsAwayHides(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "a", stack.WorkerUser: "b", stack.ReportingUser: "c", stack.BackupUser: "d", stack.OperatorUser: "e",
	}}})
	base := testenv.NewOn(t, server)
	l := base.OpenAs(stack.ReportingUser)
	log := slog.New(slog.DiscardHandler)
	f := layout.New(authenv.Gate(t, l), l, "sandbox", log)
	f.Lists.Few.MaxAge = 0
	client, err := NewClient(Settings{URL: "http://127.0.0.1:1"}, "an-admin-key-of-some-length")
	must(t, err)
	mux := http.NewServeMux()
	New(f, client).Routes(mux)
	browser := testenv.Serve(t, mux, testenv.AcceptHTML, authenv.As("operator"))

	// The first vendor's partition is lost.
	lost, kept := base.Vendor(), base.Vendor()
	partition := lost.Order("", time.Now()).ID.Partition()
	for kept.Order("", time.Now()).ID.Partition() == partition {
		kept = base.Vendor()
	}

	for i, v := range []*testenv.Vendor{lost, kept} {
		_, err := base.Ledger.Accounts.Update(t.Context(), v.Account, func(a *delivery.Account) error {
			a.Name = []string{"Verlorene Pide", "Kalan Pide"}[i]
			return nil
		})
		must(t, err)
		_, _, err = base.Ledger.Webhooks.SetURL(t.Context(), v.Account, fmt.Sprintf("https://pos-%d.example/hook", i))
		must(t, err)
	}

	const notice = "can be read right now: a Redis server does not answer"
	pages := []string{"/accounts", "/webhooks", "/fleets", "/fleets/" + base.Fleet.ID.String(), "/stores", "/stores?fleet=" + base.Fleet.ID.String()}
	for _, path := range pages {
		browser.Page(path).Hides(notice)
	}

	others := []string{"ACL", "SETUSER", stack.ReportingUser, "resetkeys", "~{sg*", "~{s[^0g]*", fmt.Sprintf("~{s0[^%x]*", partition)}
	_, err = server.Command(t.Context(), others...)
	must(t, err)

	for _, path := range pages {
		page := browser.Page(path).Says(notice)
		if path != "/fleets" {
			page.Says("Kalan Pide").Hides("Verlorene Pide")
		}
	}
}
