package tracking

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

//rule:decisions/trackingUrl
func TestLink_ExpiresADayAfterTheEnd(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o, going := e.order(), e.order()
	e.fail(o, delivery.NoCourierFound, 15*time.Minute)
	e.at(15*time.Minute + 24*time.Hour)
	e.get(o)
	e.at(15*time.Minute + 24*time.Hour + time.Millisecond)
	for _, path := range []string{pathOf(o), pathOf(o) + "/live"} {
		e.client.Get(path).Want(http.StatusNotFound, "This link has expired", "data-ended").Lacks("Moda", "Hızlı")
		e.client.Get(path, inTurkish).Want(http.StatusNotFound, "Bu bağlantının süresi doldu")
	}

	e.get(going) // an order that goes on is shown however old it is
	if e.counted(full, expired) != 2 || e.counted(renewal, expired) != 2 || e.counted(full, shown) != 2 {
		t.Errorf("counted %v, %v expired, %v shown", e.counted(full, expired), e.counted(renewal, expired), e.counted(full, shown))
	}
}

func TestLink_OfAnOrderThatHasLeftRedisHasExpired(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	digest := delivery.OrderDigest(e.store.Account, "retired long ago")
	for _, partition := range []int{0, 1, delivery.MaxPartitions - 1} {
		token := keys.Token(delivery.MakeOrderID(partition, delivery.DayOf(began)-30, digest))
		e.client.Get("/track/"+token).Want(http.StatusNotFound, "This link has expired")
	}
}

// forgeries of an order's token: none may differ from any other.
func forgeries(o *delivery.Order) []string {
	token := keys.Token(o.ID)
	other := delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": []byte("another key of thirty-two bytes!")}}
	unknown := delivery.TrackingKeys{Current: "t9", Keys: map[string][]byte{"t9": keys.Keys["t1"]}}
	changed := "A" + token[1:]
	if token[0] == 'A' {
		changed = "B" + token[1:]
	}
	return []string{other.Token(o.ID), unknown.Token(o.ID), changed, token[:len(token)-1], token + "A", token + "=", o.ID.String(), "x",
		strings.Repeat("A", longestToken), strings.Repeat("A", 4000), "%00", "%2e%2e%2f", "%ff", "şŞ", "<script>"}
}

// The log may be read by more people than an order's customer.
//
//rule:decisions/trackingUrl
func TestLink_ForgedOnesAreUnknownAndReadNothingAndNoneIsLogged(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, testenv.NewOn(t, server))
	var log bytes.Buffer
	e.pages.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := e.order()
	e.get(o)
	want := e.client.Get("/track/x").Want(http.StatusNotFound, "We do not know this link").Lacks("Moda", "expired").Text
	server.Stop() // whatever is read from now on fails
	for _, token := range forgeries(o) {
		if got := e.client.Get("/track/" + token).Want(http.StatusNotFound); got.Text != want {
			t.Errorf("%s: another page: %s", token, got.Text)
		}
		e.client.Get("/track/"+token+"/live").Want(http.StatusNotFound, "We do not know this link")
	}

	e.client.Get("/track/x", inTurkish).Want(http.StatusNotFound, "Bu bağlantıyı tanımıyoruz")

	for _, path := range []string{pathOf(o), pathOf(o) + "/live"} {
		e.client.Get(path).Want(http.StatusServiceUnavailable, "Just a moment").Carries(map[string]string{"Retry-After": "5", "Cache-Control": "no-store"})
	}

	e.client.Get(pathOf(o), inTurkish).Want(http.StatusServiceUnavailable, "Bir dakika", `http-equiv="refresh"`)
	if e.counted(full, unavailable) != 2 || e.counted(renewal, unavailable) != 1 || e.counted(full, unknown) != float64(len(forgeries(o)))+2 {
		t.Errorf("%v and %v unavailable, %v unknown", e.counted(full, unavailable), e.counted(renewal, unavailable), e.counted(full, unknown))
	}
	if !strings.Contains(log.String(), "cannot be answered") || strings.Contains(log.String(), keys.Token(o.ID)) {
		t.Errorf("the log: %s", log.String())
	}
}

func TestLink_OlderKeysStillOpen(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	rotated := delivery.TrackingKeys{Current: "t2-20270101", Keys: map[string][]byte{"t1": keys.Keys["t1"], "t2-20270101": []byte("the next key of thirty-two bytes")}}
	pages, err := New(e.Ledger, rotated, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	id, _, result := pages.open(t.Context(), keys.Token(o.ID), began)
	if result != shown || id.ID != o.ID {
		t.Errorf("%v", result)
	}
}

func TestLink_AnAskerWhoLeftIsNoFailure(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, result := e.pages.open(ctx, keys.Token(o.ID), began); result != gone {
		t.Errorf("%v", result)
	}
}

func TestLink_WaitsForRedisNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.order()
	e.pages.readTimeout = 0
	if _, _, result := e.pages.open(t.Context(), keys.Token(o.ID), began); result != unavailable {
		t.Errorf("%v", result)
	}
}

// A page without its store would look as if the store were none; a moment later it is there again.
func TestLink_WithoutTheServerOfItsStoreIsUnavailable(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	settings := e.ConfigFor(stack.ReportingUser)
	server, err := url.Parse(settings.URL)
	must(t, err)
	digest := delivery.OrderDigest(o.Account, o.ExternalStoreID)
	server.Host = serverThatDiesAt(t, server.Host, "}s"+string(digest[:]))
	settings.URL = server.String()
	l, err := ledger.Open(t.Context(), settings)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	pages, err := New(l, keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)

	_, _, result := pages.open(t.Context(), keys.Token(o.ID), began)

	if result != unavailable {
		t.Errorf("%v", result)
	}
}

// serverThatDiesAt returns the address of a Redis that can be reached until somebody names the key.
func serverThatDiesAt(t *testing.T, server, key string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	var dead atomic.Bool
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}

			redis, err := net.Dial("tcp", server)
			if dead.Load() || err != nil {
				_ = client.Close()
				continue
			}

			go func() { _, _ = io.Copy(client, redis) }()
			go func() {
				defer client.Close()
				defer redis.Close()
				request := make([]byte, 64<<10)
				for {
					n, err := client.Read(request)
					if err != nil {
						return
					}

					if bytes.Contains(request[:n], []byte(key)) {
						dead.Store(true)
						return
					}

					_, _ = redis.Write(request[:n])
				}
			}()
		}
	}()

	return listener.Addr().String()
}

func TestNew_RefusesKeysThatSignNothing(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, delivery.TrackingKeys{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil {
		t.Error("no error")
	}
}
