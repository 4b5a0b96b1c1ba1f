package main

import (
	"net"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// serverTime is an answer to TIME.
var serverTime = regexp.MustCompile(`^\*2\r\n\$10\r\n\d{10}\r\n`)

// behindRedis lets a gateway's clock be behind: it puts Redis's ahead, on the way to the gateway.
func behindRedis(t *testing.T, by time.Duration) func(*settings) {
	return func(s *settings) {
		u, err := url.Parse(s.Redis.URL)
		testenv.Must(t, err)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		testenv.Must(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		server := u.Host
		u.Host = listener.Addr().String()
		s.Redis.URL = u.String()
		pass := func(from, to net.Conn) {
			defer to.Close()
			buf := make([]byte, 64<<10)
			for n, err := from.Read(buf); err == nil; n, err = from.Read(buf) {
				answer := serverTime.ReplaceAllFunc(buf[:n], func(head []byte) []byte {
					seconds, _ := strconv.ParseInt(string(head[9:19]), 10, 64)
					return append(strconv.AppendInt([]byte("*2\r\n$10\r\n"), seconds+int64(by.Seconds()), 10), "\r\n"...)
				})
				_, err = to.Write(answer)
				if err != nil {
					return
				}
			}
		}

		go func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return
				}

				redis, err := net.Dial("tcp", server)
				if err != nil {
					_ = client.Close()
					continue
				}

				go pass(client, redis)
				go pass(redis, client)
			}
		}()
	}
}

// awaitBehind waits until the gateway knows that its clock is behind Redis's by so much. An answer of Redis that was
// late lets it believe another difference, until it looks again.
func (e *env) awaitBehind(behind time.Duration) {
	e.Helper()
	e.await("the difference of the clocks", func() bool {
		off := e.g.Ledger().ClockAhead() + behind
		return off.Abs() < time.Second
	})
}

func TestOrders_AreCreatedByRedissClock(t *testing.T) {
	const behind = 16 * time.Minute
	e := newStoreEnv(t, "", behindRedis(t, behind))
	order, err := delivery.ParseOrderID(e.created("POS-1"))
	testenv.Must(t, err)
	read, err := e.ledger.Orders.Get(t.Context(), order)
	testenv.Must(t, err)
	if off := time.Until(read.CreatedAt) - behind; off.Abs() > time.Minute {
		t.Errorf("created %s, by Redis's clock it is %s", read.CreatedAt, time.Now().Add(behind))
	}
}

func TestTokens_ExpireWhenBothClocksSaySo(t *testing.T) {
	for name, behind := range map[string]time.Duration{"Redis ahead": 2 * time.Hour, "Redis behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, behindRedis(t, behind))
			e.account = e.newAccount("")
			e.awaitBehind(behind)
			now := time.Now()
			for _, c := range []struct {
				issued time.Time
				status int
			}{
				{now, 404},
				{now.Add(behind), 404},
				{now.Add(min(behind, 0) - time.Hour - time.Second), 401},
			} {
				var err error
				e.account.token, err = e.g.vendorTokens.Issue(e.account.accountID(), c.issued)
				testenv.Must(t, err)
				if a := e.call("GET", "/orders/"+delivery.OrderID{}.String(), ""); a.status != c.status {
					t.Errorf("a token issued %s: %d %s, want %d", c.issued.Sub(now), a.status, a.body, c.status)
				}
			}
		})
	}
}

func TestTokens_OfTheFutureAreRefused(t *testing.T) {
	for name, behind := range map[string]time.Duration{"clocks agree": 0, "Redis ahead": time.Hour, "Redis behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, behindRedis(t, behind))
			e.account = e.newAccount("")
			e.awaitBehind(behind)
			latest := time.Now().Add(max(behind, 0)) // by both clocks
			for _, c := range []struct {
				issued time.Time
				status int
			}{
				{latest, 404},
				{latest.Add(4 * time.Second), 404},
				{latest.Add(5*time.Second + time.Minute), 401},
				{latest.Add(24 * time.Hour), 401},
			} {
				var err error
				e.account.token, err = e.g.vendorTokens.Issue(e.account.accountID(), c.issued)
				testenv.Must(t, err)
				a := e.call("GET", "/orders/"+delivery.OrderID{}.String(), "")
				if a.status != c.status {
					t.Errorf("a token issued %s ahead of both clocks: %d %s, want %d", c.issued.Sub(latest), a.status, a.body, c.status)
				}
				if c.status == 401 && a.code != string(delivery.CodeTokenInvalid) {
					t.Errorf("a token of the future: %s, want TOKEN_INVALID", a.code)
				}
			}
		})
	}
}

// What a revocation says of tokens, and an answer of secrets, is Redis's time. The tokens that are
// issued after it are not of the future.
func TestRevocation_GoesByRedissClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"a day ahead": 24 * time.Hour, "ten minutes behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			e := newWrongEnv(t, ahead)
			now := e.clock.now()
			account, fleet := e.newAccount(""), e.newFleet("Kurye", istanbul)
			paths := map[string]party{"/accounts/" + account.id: account, "/fleets/" + fleet.id: fleet}
			for path := range paths {
				for range 2 {
					rotated := e.admin("POST", path+"/credentials", "")
					until, err := time.Parse(time.RFC3339, rotated.data["previousValidUntil"].(string))
					testenv.Must(t, err)
					if off := until.Sub(now) - 24*time.Hour; off.Abs() > time.Minute {
						t.Errorf("%s: the secret before works until %s, want 24 hours after %s", path, until, now)
					}
				}
			}

			for api, p := range map[string]party{"vendor": account, "fleet": fleet} {
				want(t, e.login(api, p.clientID, p.secret), 200, "")
			}

			for path, p := range paths {
				rotated := e.admin("POST", path+"/credentials", `{"revokeOld":true}`)
				testenv.Must(t, e.ledger.Fleets.Load(t.Context()))
				from := time.Unix(e.ledger.Fleets.Snapshot().NotBefore(p.accountID()), 0)
				if off := from.Sub(now); off.Abs() > time.Minute {
					t.Errorf("%s: tokens are good from %s on, want from %s", path, from, now)
				}

				api := "vendor"
				if p.id == fleet.id {
					api = "fleet"
				}

				want(t, e.login(api, p.clientID, p.secret), 401, "INVALID_CREDENTIALS")
				login := e.login(api, p.clientID, rotated.data["clientSecret"].(string))
				want(t, login, 200, "")
				if api == "vendor" {
					e.account = party{token: login.data["accessToken"].(string)}
					want(t, e.call("GET", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
				}
			}
		})
	}
}
