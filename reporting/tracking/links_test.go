package tracking

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
)

// counted is what the metric of a form and a result stands at.
func (s *scene) counted(f form, r result) float64 {
	s.Helper()
	var m dto.Metric
	must(s, s.pages.metrics.of(f, r).Write(&m))
	return m.GetCounter().GetValue()
}

//rule:decisions/trackingUrl
func TestLink_ExpiresADayAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o, going := s.order(), s.order()
	s.fail(o, delivery.NoCourierFound, 15*time.Minute)
	s.at(15*time.Minute + 24*time.Hour)
	s.get(o)
	s.at(15*time.Minute + 24*time.Hour + time.Millisecond)
	for _, path := range []string{pathOf(o), pathOf(o) + "/live"} {
		s.do("GET", path).want(t, http.StatusNotFound, "This link has expired", "data-ended").hasNot(t, "Moda", "Hızlı")
		s.do("GET", path, inTurkish).want(t, http.StatusNotFound, "Bu bağlantının süresi doldu")
	}
	s.get(going) // an order that goes on is shown however old it is
	if s.counted(full, expired) != 2 || s.counted(renewal, expired) != 2 || s.counted(full, shown) != 2 {
		t.Errorf("counted %v, %v expired, %v shown", s.counted(full, expired), s.counted(renewal, expired), s.counted(full, shown))
	}
}

func TestLink_OfAnOrderThatHasLeftRedisHasExpired(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	digest := delivery.OrderDigest(s.store.Account, "retired long ago")
	for _, partition := range []int{0, 1, delivery.MaxPartitions - 1} {
		token := keys.Token(delivery.MakeOrderID(partition, delivery.DayOf(began)-30, digest))
		s.do("GET", "/track/"+token).want(t, http.StatusNotFound, "This link has expired")
	}
}

// forgeries of an order's token: none may be told from any other.
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

//rule:decisions/trackingUrl
func TestLink_ForgedOnesAreUnknownAndReadNothing(t *testing.T) {
	t.Parallel()
	own, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(own.Stop)
	s := newSceneOn(t, own.URL)
	o := s.order()
	want := s.do("GET", "/track/x").want(t, http.StatusNotFound, "We do not know this link").hasNot(t, "Moda", "expired").text
	own.Stop() // whatever is read from now on fails
	for _, token := range forgeries(o) {
		if got := s.do("GET", "/track/"+token).want(t, http.StatusNotFound); got.text != want {
			t.Errorf("%s: another page: %s", token, got.text)
		}
		s.do("GET", "/track/"+token+"/live").want(t, http.StatusNotFound, "We do not know this link")
	}
	s.do("GET", "/track/x", inTurkish).want(t, http.StatusNotFound, "Bu bağlantıyı tanımıyoruz")

	for _, path := range []string{pathOf(o), pathOf(o) + "/live"} {
		got := s.do("GET", path).want(t, http.StatusServiceUnavailable, "Just a moment")
		if got.Header.Get("Retry-After") != "5" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", got.Header)
		}
	}
	s.do("GET", pathOf(o), inTurkish).want(t, http.StatusServiceUnavailable, "Bir dakika", `http-equiv="refresh"`)
	if s.counted(full, unavailable) != 2 || s.counted(renewal, unavailable) != 1 || s.counted(full, unknown) != float64(len(forgeries(o)))+2 {
		t.Errorf("%v and %v unavailable, %v unknown", s.counted(full, unavailable), s.counted(renewal, unavailable), s.counted(full, unknown))
	}
}

func TestLink_OlderKeysStillOpen(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	rotated := delivery.TrackingKeys{Current: "t2-20270101", Keys: map[string][]byte{"t1": keys.Keys["t1"], "t2-20270101": []byte("the next key of thirty-two bytes")}}
	pages, err := New(s.ledger, rotated, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	id, _, result := pages.open(context.Background(), keys.Token(o.ID), began)
	if result != shown || id.ID != o.ID {
		t.Errorf("%v", result)
	}
}

// The log may be read by more people than an order's customer.
func TestLink_IsInNoLog(t *testing.T) {
	t.Parallel()
	own, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(own.Stop)
	s := newSceneOn(t, own.URL)
	var log bytes.Buffer
	s.pages.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := s.order()
	s.get(o)
	own.Stop()
	s.do("GET", pathOf(o)).want(t, http.StatusServiceUnavailable)
	if !strings.Contains(log.String(), "cannot be answered") || strings.Contains(log.String(), keys.Token(o.ID)) {
		t.Errorf("the log: %s", log.String())
	}
}

func TestLink_AnAskerWhoLeftIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, result := s.pages.open(ctx, keys.Token(o.ID), began); result != gone {
		t.Errorf("%v", result)
	}
}

func TestNew_RefusesKeysThatSignNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	if _, err := New(s.ledger, delivery.TrackingKeys{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil {
		t.Error("no error")
	}
}
