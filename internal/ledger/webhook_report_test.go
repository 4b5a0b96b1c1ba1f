package ledger

import (
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
)

// newFinanceEnv is a ledger of one partition with an account, whose env's account is finance.
func newFinanceEnv(t *testing.T) (s *env, vendor delivery.AccountID) {
	t.Helper()
	s = newUnregistered(t)
	vendor, s.account = s.account, delivery.FinanceAccount
	return s, vendor
}

func (s *env) announce(t *testing.T, id string, kind delivery.ReportKind) (string, error) {
	return s.Webhooks.AnnounceReport(t.Context(), &delivery.AvailableReport{ID: id, Kind: kind, At: s.now()}, s.now())
}

// notices are the ids of the notices in the stream of events.
func (s *env) notices(t *testing.T) (ids []string) {
	t.Helper()
	for _, m := range get(s.core.Redis.XRange(t.Context(), s.core.Partitions[0].Key(core.KindEvents), "-", "+").Result())(t) {
		var e partitions.Entry
		must(t, e.Read(s.core.Partitions[0], m.Values))
		for _, one := range e.Events {
			if one.Notice != "" {
				ids = append(ids, one.Notice)
			}
		}
	}

	return ids
}

func TestAnnounceReport_OneEventForEachID(t *testing.T) {
	s, _ := newFinanceEnv(t)
	before := s.content(t, s.core.Partitions[0])
	wantCode(t, errOf(s.announce(t, "closing-2026-10", delivery.ReportClosing)), delivery.CodeWebhookNotConfigured)
	equal(t, s.content(t, s.core.Partitions[0]), before, "after a refusal the ledger")
	s.register(t)
	const want = "evt_2c8fce20-6377-5a0c-b57b-b8a754445b1d"
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			if id, err := s.announce(t, "closing-2026-10", delivery.ReportClosing); err != nil || id != want {
				t.Errorf("%s, %v", id, err)
			}
		})
	}

	together.Wait()
	// The answer was lost, and the caller asks again much later, of what has changed since.
	s.pass(t, 90*24*time.Hour)
	equal(t, get(s.announce(t, "closing-2026-10", delivery.ReportCorrection))(t), want, "a repetition's event")
	other := get(s.announce(t, "closing-2026-11", delivery.ReportClosing))(t)
	equal(t, s.notices(t), []string{want, other}, "events")
	n := get(accounts.DecodeNotice(s.core.Redis.Get(t.Context(), s.core.Partitions[0].KeyOf(core.KindNotice, []byte(want))).Val()))(t)
	check(t, n.Type == delivery.ReportAvailable && n.Account == delivery.FinanceAccount && string(n.Data) == `{"id":"closing-2026-10","kind":"closing","files":[],"at":"`+delivery.FormatTime(n.OccurredAt)+`"}`, "%+v %s", n, n.Data)
	left := s.core.Redis.PTTL(t.Context(), s.core.Partitions[0].KeyOf(core.KindNotice, []byte(want))).Val()
	check(t, left > webhooks.ReportLifetime-time.Hour, "the id is known for %s", left)
	wantCode(t, errOf(s.Webhooks.ReplayEvents(t.Context(), s.account, []string{"evt_none"})), delivery.CodeEventNotFound)
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, []string{want, other}))(t), 2, "replayed")
}

// Finance has an endpoint as accounts have, and is none.
func TestFinance_IsNoAccount(t *testing.T) {
	s, vendor := newFinanceEnv(t)
	first := s.register(t).Secret
	second := get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	equal(t, s.endpoint(t).Secrets(s.now()), []string{second, first}, "secrets that sign")
	all := allAccounts(t, s.Ledger)
	check(t, len(all) == 1 && all[0].ID == vendor, "%d accounts", len(all))
	wantCode(t, errOf(s.Accounts.Get(t.Context(), s.account)), delivery.CodeAccountNotFound)
	wantCode(t, errOf(s.Accounts.RotateSecret(t.Context(), s.account, testHash, time.Hour, false)), delivery.CodeAccountNotFound)
	wantCode(t, errOf(s.Accounts.Update(t.Context(), s.account, func(*delivery.Account) error { return nil })), delivery.CodeAccountNotFound)
	check(t, !get(s.Limits.KnowsAccountSecret(t.Context(), s.account, testHash))(t), "finance can log in")
	endpoints := allReceivers(t, s.Ledger)
	check(t, len(endpoints) == 1 && endpoints[0].Account == s.account, "%+v", endpoints)
	owner := get(s.Webhooks.Owner(t.Context(), s.account))(t)
	equal(t, *owner, delivery.Account{ID: s.account, Name: "Finance"}, "owner")
	equal(t, get(s.Webhooks.Owner(t.Context(), vendor))(t).Name, "Vendor", "an account's owner")
	wantCode(t, errOf(s.Webhooks.Owner(t.Context(), delivery.NewAccountID())), delivery.CodeAccountNotFound)
}
