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
				if _, err = to.Write(answer); err != nil {
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
