package operate

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const largestPage = 100_000

// Pages stay below 100 kB with more of everything than one of them shows.
func TestPages_StaySmall(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet := s.newAccount("Kalabalık Restoranlar Zinciri Anonim Şirketi"), s.newFleet("Kalabalık Kurye ve Lojistik Limited Şirketi")
	for i := range accountsShown + 5 {
		other := s.newAccount(fmt.Sprintf("Kalabalık Restoranlar Zinciri Anonim Şirketi %d", i))
		s.register(other, fmt.Sprintf("https://hooks.restoran-%d.example.com.tr/delivery/vendor-api/v1/events?tenant=%d", i, i))
	}
	for i := range storesFound + 5 {
		s.putStore(v, fmt.Sprintf("SUBE-%04d-KADIKOY-MODA", i), fmt.Sprintf("Kalabalık Restoran Kadıköy Moda Şubesi %d", i), fleet)
	}
	for i := range fleetsShown {
		s.newFleet(fmt.Sprintf("Kalabalık Kurye ve Lojistik Limited Şirketi %d", i))
	}
	s.call(http.MethodPatch, "/fleets/"+fleet.String(), map[string]any{"coverage": json.RawMessage(jagged(19_000))})
	s.fillLog(v)
	for path, more := range map[string]string{
		"/accounts": "Page 1 of", "/accounts/" + v.id: "there are more", "/webhooks": "Page 1 of", "/webhooks/" + v.id: "answer-",
		"/fleets": "Page 1 of", "/fleets/" + fleet.String(): "All 65", "/stores?account=" + v.id: "narrow the search", "/stores/" + v.id + "/SUBE-0001-KADIKOY-MODA": "map-coverage",
	} {
		b.get(path).want(200, more) // warm
		began := time.Now()
		a := b.get(path)
		t.Logf("%6d bytes, %8v %s", len(a.text), time.Since(began).Round(100*time.Microsecond), path)
		if len(a.text) > largestPage {
			t.Errorf("%s has %d bytes", path, len(a.text))
		}
	}
	if log := s.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Error(log)
	}
	second := b.get("/accounts?page=2&text=kalabal%C4%B1k").want(200, "Page 2 of")
	b.get("/accounts?page=999&text=kalabal%C4%B1k").want(200, "Page 2 of")
	if !strings.Contains(second.text, "page=1&amp;text=") {
		t.Error("the way back forgets the search")
	}
}

// Vendors choose their URLs, and what is pasted may be large.
func TestPages_StaySmallWhateverIsTyped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	mark := "Uzun adresli " + t.Name()
	long := "https://vendor.example/" + strings.Repeat("&", 1800)
	var v vendor
	for range receiversShown {
		v = s.newAccount(mark)
		s.register(v, long)
	}
	if a := b.get("/webhooks?text="+url.QueryEscape(mark)).want(200, "https://vendor.example/", "…"); len(a.text) > largestPage {
		t.Errorf("the list has %d bytes", len(a.text))
	}
	if got := b.get("/webhooks/" + v.id).value("url"); got != long {
		t.Errorf("the receiver's page has another URL: %s", got)
	}
	id := s.newFleet(mark)
	page := "/fleets/" + id.String()
	for form, action := range map[string]string{page: page + "/coverage", "/fleets": "/fleets"} {
		a := b.submit(form, action, "coverage", jagged(19_000)+"}").want(http.StatusUnprocessableEntity, "too long to be shown again")
		if a.fault("coverage") == "" || a.value("coverage") != "" || len(a.text) > largestPage {
			t.Errorf("%s: %q, %d bytes", form, a.fault("coverage"), len(a.text))
		}
	}
}

// jagged is a coverage with many corners.
func jagged(corners int) string {
	var ring strings.Builder
	for i := range corners {
		angle, radius := 2*math.Pi*float64(i)/float64(corners), 0.3+0.05*math.Sin(float64(i)*1.7)
		fmt.Fprintf(&ring, "[%.6f,%.6f],", 29+radius*math.Cos(angle), 41+radius*math.Sin(angle))
	}
	return `{"type":"Polygon","coordinates":[[` + ring.String() + fmt.Sprintf("[%.6f,%.6f]]]}", 29.3, 41.0)
}

// fillLog fails more attempts than a page shows, all at once, with answers of
// 2 kB that grow when they are escaped.
func (s *scene) fillLog(v vendor) {
	s.Helper()
	const attempts = attemptsListed + 4
	var waiting atomic.Int64
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		waiting.Add(1)
		for deadline := time.Now().Add(5 * time.Second); waiting.Load() < attempts && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte(strings.Repeat(`<td class="x">Ş</td>`, 100)))
	}))
	s.Cleanup(r.Close)
	s.register(v, r.URL)
	s.call(http.MethodPatch, "/accounts/"+v.id+"/webhook", map[string]int{"maxInFlight": attempts})
	for range attempts {
		s.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
	}
	s.await("the attempts", func() bool {
		log, err := s.ledger.Attempts(s.Context(), v.account(), "retrying")
		return err == nil && len(log) >= attemptsListed
	})
}
