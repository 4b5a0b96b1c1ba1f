//go:build long

package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// Pages stay below 100 kB with more of everything than one of them shows.
func TestPages_StaySmall(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Kalabalık Restoranlar Zinciri Anonim Şirketi"), e.newFleet("Kalabalık Kurye ve Lojistik Limited Şirketi")
	for i := range accountsShown + 5 {
		other := e.newAccount(fmt.Sprintf("Kalabalık Restoranlar Zinciri Anonim Şirketi %d", i))
		e.register(other, fmt.Sprintf("https://hooks.restoran-%d.example.com.tr/delivery/vendor-api/v1/events?tenant=%d", i, i))
	}

	for i := range storesFound + 5 {
		e.putStore(v, fmt.Sprintf("SUBE-%04d-KADIKOY-MODA", i), fmt.Sprintf("Kalabalık Restoran Kadıköy Moda Şubesi %d", i), fleet)
	}

	for i := range fleetsShown {
		e.newFleet(fmt.Sprintf("Kalabalık Kurye ve Lojistik Limited Şirketi %d", i))
	}

	e.call(http.MethodPatch, "/fleets/"+fleet.String(), map[string]any{"coverage": json.RawMessage(jagged(19_000))})
	e.fillLog(v)
	for path, more := range map[string]string{
		"/accounts": `rel="next"`, "/accounts/" + v.id: "there are more", "/webhooks": `rel="next"`, "/webhooks/" + v.id: "answer-",
		"/fleets": "page 1 of", "/fleets/" + fleet.String(): "All 65", "/stores?account=" + v.id: "narrow the search", "/stores/" + v.id + "/SUBE-0001-KADIKOY-MODA": "map-coverage",
	} {
		e.Get(path).Want(200, more)
		if a := e.Get(path); len(a.Text) > largestPage {
			t.Errorf("%s has %d bytes", path, len(a.Text))
		}
	}

	if log := e.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Error(log)
	}

	first := e.Get("/accounts?text=kalabal%C4%B1k")
	next := first.Link("Next")
	second := e.Get(next).Want(200, "Kalabalık")
	if !strings.Contains(next, "text=kalabal%C4%B1k") || !strings.Contains(second.Text, `href="/accounts?text=kalabal%C4%B1k">First`) {
		t.Error("the way back forgets the search")
	}
}

// Vendors choose their URLs, and what is pasted may be large.
func TestPages_StaySmallWhateverIsTyped(t *testing.T) {
	e := newEnv(t)
	mark := "Uzun adresli " + t.Name()
	long := "https://vendor.example/" + strings.Repeat("&", 1800)
	var v vendor
	for range receiversShown {
		v = e.newAccount(mark)
		e.register(v, long)
	}

	if a := e.Get("/webhooks?text="+url.QueryEscape(mark)).Want(200, "https://vendor.example/", "…"); len(a.Text) > largestPage {
		t.Errorf("the list has %d bytes", len(a.Text))
	}
	if got := e.Get("/webhooks/" + v.id).Value("url"); got != long {
		t.Errorf("the receiver's page has another URL: %s", got)
	}
}

// fillLog fails more attempts than a page shows, all at once, with answers of
// 2 kB that grow when they are escaped.
func (e *env) fillLog(v vendor) {
	e.T.Helper()
	const attempts = attemptsListed + 4
	var waiting atomic.Int64
	all := make(chan struct{}) // closed when all attempts are in progress: none of them waits for a retry
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if waiting.Add(1) == attempts {
			close(all)
		}

		select {
		case <-all:
		case <-req.Context().Done():
		}

		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte(strings.Repeat(`<td class="x">Ş</td>`, 100)))
	}))

	e.T.Cleanup(r.Close)
	e.register(v, r.URL)
	e.call(http.MethodPatch, "/accounts/"+v.id+"/webhook", map[string]int{"maxInFlight": attempts})
	for range attempts {
		e.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
	}

	e.await("the attempts", func() bool {
		log, err := e.ledger.Webhooks.Attempts(e.T.Context(), v.account(), "retrying")
		return err == nil && len(log) >= attemptsListed
	})
}
