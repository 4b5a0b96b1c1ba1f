package ledger

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// wrongClocks are by how much the clock of a process is ahead of Redis's.
var wrongClocks = map[string]time.Duration{
	"a day ahead":        25 * time.Hour,
	"ten minutes ahead":  10 * time.Minute,
	"ten minutes behind": -10 * time.Minute,
	"a day behind":       -25 * time.Hour,
}

// openWrong opens a ledger once more, in a process whose clock is wrong.
func openWrong(t *testing.T, l *Ledger, ahead time.Duration) *Ledger {
	t.Helper()
	return openTest(t, sameDatabase(l), func(c *core.Config) {
		c.Now = func() time.Time { return time.Now().Add(ahead) }
	})
}

// isAround reports whether a time is the expected one, but for what a test takes.
func isAround(at, want time.Time) bool { return at.Sub(want).Abs() < time.Minute }

func TestRotation_GoesByRedissClock(t *testing.T) {
	for name, ahead := range wrongClocks {
		t.Run(name, func(t *testing.T) {
			l := openTest(t)
			account, fleet := newAccount(t, l, plenty()), newFleet(t, l)
			wrong := openWrong(t, l, ahead)
			tomorrow := time.Now().Add(24 * time.Hour)
			rotations := map[string]func(hash byte, revokeOld bool) (time.Time, error){
				"account": func(hash byte, revokeOld bool) (time.Time, error) {
					return wrong.Accounts.RotateSecret(t.Context(), account, [32]byte{hash}, 24*time.Hour, revokeOld)
				},
				"fleet": func(hash byte, revokeOld bool) (time.Time, error) {
					return wrong.Fleets.RotateSecret(t.Context(), fleet.ID, [32]byte{hash}, 24*time.Hour, revokeOld)
				},
			}

			for kind, rotate := range rotations {
				for hash := range byte(2) {
					until := get(rotate(10+hash, false))(t)
					check(t, isAround(until, tomorrow), "%s: the secret before works until %s, want %s", kind, until, tomorrow)
				}
			}

			// All three work, whoever is asked.
			must(t, l.Fleets.Load(t.Context()))
			must(t, wrong.Fleets.Load(t.Context()))
			for _, hash := range [][32]byte{testHash, {10}, {11}} {
				get2(wrong.Limits.CountToken(t.Context(), account, hash))(t)
				for who, process := range map[string]*Ledger{"right": l, "wrong": wrong} {
					isRight := get(process.Limits.HasAccountSecret(t.Context(), account, hash))(t)
					check(t, isRight, "%s clock: the account's secret %d does not work", who, hash[0])
					isRight = process.Fleets.VerifySecret(fleet.ID, hash, process.core.Now())
					check(t, isRight, "%s clock: the fleet's secret %d does not work", who, hash[0])
				}
			}

			for kind, rotate := range rotations {
				until := get(rotate(12, true))(t)
				check(t, isAround(until, time.Now()), "%s: with revokeOld the secrets before work until %s", kind, until)
			}

			must(t, l.Fleets.Load(t.Context()))
			for kind, subject := range map[string][16]byte{"account": account, "fleet": fleet.ID} {
				from := time.Unix(l.Fleets.Snapshot().NotBefore(subject), 0)
				check(t, isAround(from, time.Now()), "%s: tokens are good from %s on", kind, from)
			}
		})
	}
}

func TestWebhookRotation_GoesByRedissClock(t *testing.T) {
	for name, ahead := range wrongClocks {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			first := s.register(t).Secret
			wrong := openWrong(t, s.Ledger, ahead)
			get(wrong.ServerTime(t.Context()))(t)

			second := get(wrong.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
			tomorrow := time.Now().Add(24 * time.Hour)
			for who, process := range map[string]*Ledger{"right": s.Ledger, "wrong": wrong} {
				e := get(process.Webhooks.Endpoint(t.Context(), s.account))(t)
				require(t, len(e.Earlier) == 1 && isAround(e.Earlier[0].Until, tomorrow), "%s clock: %+v, want one until %s", who, e.Earlier, tomorrow)
				equal(t, e.Secrets(process.core.Now()), []string{second, first}, who+" clock: these sign")
			}
		})
	}
}

func TestReplay_ReachesWhatRedissClockSays(t *testing.T) {
	for name, ahead := range wrongClocks {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			s.register(t)
			s.publish(t, 4)
			wrong := openWrong(t, s.Ledger, ahead)
			replayed := get(wrong.Webhooks.ReplaySince(t.Context(), s.account, time.Now().Add(-time.Hour), nil))(t)
			equal(t, replayed, 4, "replayed")
			replayed = get(wrong.Webhooks.ReplaySince(t.Context(), s.account, time.Now().Add(time.Minute), nil))(t)
			equal(t, replayed, 0, "replayed of what comes later")
		})
	}
}

// The process that reads what is due now, and until when, asks Redis and not its own clock.
func TestAccounts_AreInExcessByRedissClock(t *testing.T) {
	for name, ahead := range wrongClocks {
		t.Run(name, func(t *testing.T) {
			l := openTest(t)
			bounds := plenty()
			bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 3600}}
			id := newAccount(t, l, bounds)
			start := time.Now().Truncate(time.Minute).Add(-5 * time.Minute)
			for n := range 6 {
				for range 5 {
					_, _ = l.Limits.Consume(t.Context(), id, limits.EndpointOrders)
				}
				must(t, l.Limits.Flush(t.Context(), start.Add(time.Duration(n)*time.Minute)))
			}

			wrong := openWrong(t, l, ahead)
			get(wrong.ServerTime(t.Context()))(t)
			account := get(wrong.Accounts.Get(t.Context(), id))(t)
			check(t, !account.ExcessSince.IsZero(), "the account is not in excess")
			page, _, err := wrong.Accounts.Page(t.Context(), accounts.AccountFilter{State: accounts.AccountInExcess}, "", 10)
			must(t, err)
			equal(t, len(page), 1, "accounts in excess")
		})
	}
}

func TestSessions_EndByRedissClock(t *testing.T) {
	for name, ahead := range wrongClocks {
		t.Run(name, func(t *testing.T) {
			l := openTest(t)
			wrong := openWrong(t, l, ahead)
			get(wrong.ServerTime(t.Context()))(t)

			id, created := signIn(t, wrong)
			check(t, isAround(created.CreatedAt, time.Now()), "created %s", created.CreatedAt)
			for who, process := range map[string]*Ledger{"right": l, "wrong": wrong} {
				equal(t, errOf(process.Sessions.Get(t.Context(), id)), nil, who+" clock: the session of just now")
			}
		})
	}
}

// What is not old enough by Redis's clock stays, whatever the clock of the worker says.
func TestTrim_GoesByRedissClock(t *testing.T) {
	s := newWebhookEnv(t)
	s.publish(t, 3)
	wrong := openTest(t, sameDatabase(s.Ledger), func(c *core.Config) {
		c.Now, c.ClockKey = func() time.Time { return time.Now().Add(48 * time.Hour) }, ""
	})
	get(wrong.ServerTime(t.Context()))(t)
	entries := func() int64 { return get(s.core.Redis.XLen(t.Context(), s.key(core.KindAccountEvents)).Result())(t) }
	before := entries()
	get(wrong.Streams.TrimAccounts(t.Context(), s.core.PartitionOf(s.account).Number))(t)
	equal(t, entries(), before, "events of the account's stream after a trim")
}
